//! What an answer must show, by each rule, and what excuses it if it does not.
use super::{Excuse, Floor, Floors, Judge, Met, OfKey, Rule, Seen, Shown, Violation, Witness, name};
use turnbuckle_core::{Micros, Rank};

/// What one rule demands.
#[derive(Debug, Clone, Copy, Default)]
struct Need {
    firm: Option<Floor>,
    /// What it would demand without an excuse.
    excused: Option<(Floor, Excuse)>,
}

impl Need {
    fn excuse(&mut self, floor: Floor, excuse: Excuse) {
        if self.excused.is_none_or(|(known, _)| known < floor) {
            self.excused = Some((floor, excuse));
        }
    }

    fn is_none(self) -> bool {
        self.firm.is_none() && self.excused.is_none()
    }

    /// Whether an answer meets the need: the excuse, if one prevents a verdict, or the floor that is not met.
    fn judge(self, of_key: &OfKey, shown: Shown) -> Result<Option<Excuse>, Floor> {
        let mut excuse = None;
        if let Some(floor) = self.firm {
            match of_key.is_met(shown, Some(floor)) {
                Met::Yes => {}
                Met::Perhaps => excuse = Some(Excuse::UnknownOutcome),
                Met::No => return Err(floor),
            }
        }
        if let Some((floor, why)) = self.excused
            && of_key.is_met(shown, Some(floor)) != Met::Yes
        {
            excuse = excuse.or(Some(why));
        }
        Ok(excuse)
    }
}

/// What all rules demand.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    /// By the rule that nothing is undone.
    witness: Need,
    /// By the same rule, for the session, if its level promises an order of each key's operations.
    session: Need,
    /// By the rule that forgotten deletes are shown.
    forgotten: Need,
    /// By the rule that all sites have what a client has waited for.
    waited: Need,
    /// By the rule that the receipt is true.
    claim: Need,
    /// When the write that the receipt claims to reflect was acknowledged.
    claimed_at: Micros,
    /// By the rule of conditions, where one replica decides.
    decided: Need,
}

/// The result for an answer.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub violations: Vec<Violation>,
    /// Why the answer was not judged.
    pub answer: Option<Excuse>,
    /// Why the receipt was not judged.
    pub claim: Option<Excuse>,
}

impl Judge {
    pub(super) fn needs(&self, seen: &Seen) -> Needs {
        let Some(of_key) = self.keys.get(&seen.key) else {
            return Needs::default();
        };
        let (claim, claimed_at) = self.claimed(of_key, seen);
        Needs {
            witness: self.shown_before(of_key, seen, seen.witness, seen.is_careless),
            session: match seen.session {
                Some((session, true)) => self.shown_before(of_key, seen, session, false),
                _ => Need::default(),
            },
            forgotten: self.forgotten_before(of_key, seen),
            waited: self.waited_before(of_key, seen),
            claim,
            claimed_at,
            decided: self.acknowledged_here(of_key, seen),
        }
    }

    /// What a replica that decides alone had acknowledged itself.
    fn acknowledged_here(&self, of_key: &OfKey, seen: &Seen) -> Need {
        let mut need = Need::default();
        if !seen.is_decided_at_site {
            return need;
        }
        let here = of_key
            .acknowledged_until(seen.invoked)
            .iter()
            .filter(|write| write.version.id.replica == seen.server.replica());
        for write in here {
            let floor = Floor::at_least(write.version);
            match self.is_excused(of_key, seen, write.version) {
                true => need.excuse(floor, Excuse::PowerLoss),
                false => need.firm = need.firm.max(Some(floor)),
            }
        }
        need
    }

    /// What the witness had been shown before, unless something excuses that it is shown less.
    pub(super) fn firm_floor(&self, of_key: &OfKey, seen: &Seen) -> Option<Floor> {
        self.shown_before(of_key, seen, seen.witness, false).firm
    }

    fn shown_before(&self, of_key: &OfKey, seen: &Seen, witness: Witness, is_careless: bool) -> Need {
        let mut need = Need::default();
        let Some(floors) = of_key.floors.get(&witness) else {
            return need;
        };
        for raised in floors.iter().filter(|raised| seen.follows(raised)) {
            let is_of_session = matches!(witness, Witness::Session(..)) && !self.tells_losses;
            if is_of_session && self.is_excused(of_key, seen, raised.floor.version) {
                need.excuse(raised.floor, Excuse::PowerLoss);
                continue;
            }
            need.firm = Some(raised.floor);
            break;
        }
        if let Some(floor) = floors.excused {
            need.excuse(floor, Excuse::PowerLoss);
        }
        if is_careless && let Some(floor) = need.firm.take() {
            need.excuse(floor, Excuse::LevelEventual);
        }
        need
    }

    /// A lost version is demanded only of replicas that have shown it themselves before this operation was invoked: a version that comes
    /// back while an answer is on its way is not in the answer.
    pub(super) fn is_excused(&self, of_key: &OfKey, seen: &Seen, version: Rank) -> bool {
        let shown = of_key.shown.get(&seen.server);
        let at = shown.and_then(|shown| shown.get(&version));
        !self.losses.is_empty() && at.is_none_or(|&at| at >= seen.invoked) && self.is_lost(&seen.key, version)
    }

    /// What all sites were said to have, or this one.
    fn waited_before(&self, of_key: &OfKey, seen: &Seen) -> Need {
        let mut need = Need::default();
        let heard = of_key.heard.get(&seen.server.site);
        let floors = [Some(&of_key.waited), heard].into_iter().flatten();
        let all = floors.flat_map(Floors::iter);
        let started = self.started.get(&seen.server.site);
        for raised in all.filter(|raised| seen.follows(raised)) {
            if self.is_gone(seen, raised.at) || self.is_excused(of_key, seen, raised.floor.version) {
                need.excuse(raised.floor, Excuse::PowerLoss);
            } else if seen.is_of_snapshot && raised.floor.version.id.replica == seen.server.replica() {
                need.excuse(raised.floor, Excuse::Snapshot);
            } else if started.is_some_and(|&started| started >= raised.at) {
                need.excuse(raised.floor, Excuse::Restart);
            } else {
                need.firm = need.firm.max(Some(raised.floor));
            }
        }
        need
    }

    /// Whether the replica may have lost what it had at this time. One that lost power may have, unless it had synced it.
    fn is_gone(&self, seen: &Seen, at: Micros) -> bool {
        let mut losses = self.losses.get(&seen.server).into_iter().flatten();
        losses.any(|loss| loss.at >= at && loss.kept_until < at)
    }

    fn forgotten_before(&self, of_key: &OfKey, seen: &Seen) -> Need {
        let mut need = Need::default();
        for raised in of_key.forgotten.iter().filter(|raised| seen.follows(raised)) {
            if !self.is_gone(seen, raised.at) {
                need.firm = Some(raised.floor);
                break;
            }
            need.excuse(raised.floor, Excuse::PowerLoss);
        }
        need
    }

    fn claimed(&self, of_key: &OfKey, seen: &Seen) -> (Need, Micros) {
        let mut need = Need::default();
        let Some(staleness) = seen.staleness else {
            return (need, Micros(0));
        };
        let writes = of_key.acknowledged_until(seen.invoked.since(staleness));
        let newest = match seen.covers {
            // Every write was acknowledged by one replica.
            1 => writes.last().map(|write| write.newest()),
            covers => {
                let covered = writes.iter().filter(|write| write.copies >= covers);
                covered.map(|write| (write.version, write.at)).max()
            }
        };
        let Some((newest, at)) = newest else {
            return (need, Micros(0));
        };
        if self.clocks_lie && seen.rests_on_clocks && (seen.ahead != Some(newest) || !self.losses.is_empty())
        {
            need.excuse(Floor::at_least(newest), Excuse::Clock);
            return (need, at);
        }
        if self.losses.is_empty() {
            need.firm = Some(Floor::at_least(newest));
            return (need, at);
        }
        let mut claimed_at = at;
        for write in writes.iter().rev() {
            let (newest, _) = write.newest();
            if need.firm >= Some(Floor::at_least(newest)) {
                // All writes that were acknowledged before it are older.
                break;
            }
            if write.copies < seen.covers {
                continue;
            }
            let floor = Floor::at_least(write.version);
            if Some(floor) <= need.firm {
                continue;
            }
            match self.is_excused(of_key, seen, write.version) {
                true => need.excuse(floor, Excuse::PowerLoss),
                false => (need.firm, claimed_at) = (Some(floor), write.at),
            }
        }
        (need, claimed_at)
    }
}

impl Needs {
    /// Whether the answer itself, without its receipt, has to meet a floor.
    pub fn has_answer_needs(&self) -> bool {
        let needs = [
            self.witness,
            self.session,
            self.forgotten,
            self.waited,
            self.decided,
        ];
        needs.into_iter().any(|need| !need.is_none())
    }

    /// Whether its receipt claims anything that could be wrong.
    pub fn has_claim(&self) -> bool {
        !self.claim.is_none()
    }

    /// The highest floor that has no excuse. What follows from it is written into traces, too. So what was waited for is left out: if that is wrong, the checker must not
    /// be told of a version that no answer has named.
    pub fn highest(&self) -> Option<Floor> {
        let firm = [
            self.witness.firm,
            self.session.firm,
            self.forgotten.firm,
            self.claim.firm,
            self.decided.firm,
        ];
        firm.into_iter().max().flatten()
    }

    pub fn judge(&self, of_key: &OfKey, seen: &Seen, shown: Shown) -> Judgement {
        let mut judgement = Judgement::default();
        let (id, key, shows) = (seen.id.0, &seen.key, words(shown));
        let mut wrong = |rule, words| judgement.violations.push(Violation { rule, words });
        let mut undone = |need: Need, witness: Witness| {
            need.judge(of_key, shown).unwrap_or_else(|floor| {
                wrong(
                    Rule::NothingUndone,
                    format!("operation {id}: {witness} {floor} of {key}, and now {shows}"),
                );
                None
            })
        };
        let witness = undone(self.witness, seen.witness);
        let session = seen
            .session
            .and_then(|(session, _)| undone(self.session, session));
        let forgotten = self.forgotten.judge(of_key, shown).unwrap_or_else(|floor| {
            let server = seen.server;
            wrong(
                Rule::ForgottenIsShown,
                format!("operation {id}: a site has forgotten {floor} of {key}, and now replica {server} shows {shows}"),
            );
            None
        });
        let waited = self.waited.judge(of_key, shown).unwrap_or_else(|floor| {
            let server = seen.server;
            wrong(
                Rule::WaitedFor,
                format!("operation {id}: the site was said to have {floor} of {key}, and now replica {server} shows {shows}"),
            );
            None
        });
        let claim = self.claim.judge(of_key, shown).unwrap_or_else(|floor| {
            wrong(Rule::TrueReceipts, self.false_claim(seen, floor, &shows));
            None
        });
        let decided = self.decided.judge(of_key, shown).unwrap_or_else(|floor| {
            let server = seen.server;
            wrong(
                Rule::Conditions,
                format!("operation {id}: replica {server} had acknowledged {floor} of {key}, and decides on {shows}"),
            );
            None
        });
        // Whatever the floors demand: if the answer says that there was a value, there must have been one.
        let alone = match of_key.is_met(shown, None) {
            Met::Yes => None,
            Met::Perhaps => Some(Excuse::UnknownOutcome),
            Met::No => {
                wrong(
                    Rule::RealValues,
                    format!("operation {id} was told that {key} had a value, and no client had written one"),
                );
                None
            }
        };
        judgement.answer = witness.or(session).or(forgotten).or(waited).or(decided).or(alone);
        judgement.claim = claim;
        if matches!(shown, Shown::ValueBelow(_)) {
            judgement.answer = judgement.answer.or(claim);
        }
        judgement
    }

    fn false_claim(&self, seen: &Seen, floor: Floor, shows: &str) -> String {
        format!(
            "operation {}: the receipt of {} from replica {} claims to reflect every write that was acknowledged {} before; {floor} was \
             acknowledged {} before, and the answer shows {shows}",
            seen.id.0,
            seen.key,
            seen.server,
            seen.staleness.unwrap_or_default(),
            seen.invoked.since(self.claimed_at),
        )
    }
}

impl Seen {
    /// Whether it was asked after something had been answered, or after its own client had asked for that.
    fn follows(&self, raised: &super::Raised) -> bool {
        raised.number <= self.before || raised.client == self.client && raised.id < self.id
    }
}

fn words(shown: Shown) -> String {
    match shown {
        Shown::Version(version) | Shown::ValueOf(version) => name(Some(version)),
        Shown::Nothing { .. } => name(None),
        Shown::ValueBelow(version) => format!("some value older than version {version}"),
    }
}
