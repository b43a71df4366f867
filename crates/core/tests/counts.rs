//! Numbers at several sites, whose versions arrive in drawn orders, beside an oracle that names each addition.
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{
    Chain, Change, Changed, Compute, Computed, Content, Expiry, Hlc, Micros, PutOptions, ReplicaId, Retimes,
    Shown, Version, VersionId,
};

const SITES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Add(usize, i64),
    Write(usize),
    Delete(usize),
    /// The value expires after this time. 0: it has expired long ago.
    Expire(usize, u64),
    Persist(usize),
    /// The next version of the first site arrives at the second one.
    Deliver(usize, usize),
    /// Time passes.
    Wait(u64),
    /// A site drops versions that no reader asks for any more.
    Collect(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let site = || 0..SITES;
    prop_oneof![
        6 => (site(), -3..9_i64).prop_map(|(site, more)| Step::Add(site, more)),
        1 => site().prop_map(Step::Write),
        1 => site().prop_map(Step::Delete),
        1 => (site(), 0..40_u64).prop_map(|(site, after)| Step::Expire(site, after)),
        1 => site().prop_map(Step::Persist),
        8 => (site(), site()).prop_map(|(from, to)| Step::Deliver(from, to)),
        1 => (1..30_u64).prop_map(Step::Wait),
        1 => site().prop_map(Step::Collect),
    ]
}

/// The number of an addition.
type Number = usize;

/// What the oracle knows of a version: which additions there are in it.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Of a count: what it has.
    has: BTreeSet<Number>,
    /// Of a version of the register: what it has seen.
    seen: BTreeSet<Number>,
    /// Of a version of the register: the time of the expiry that had passed when it was written.
    before: Option<Hlc>,
}

#[derive(Default)]
struct Site {
    /// With all versions, or with those that are not replaced.
    history: Option<Chain<()>>,
    latest: Option<Chain<()>>,
    /// Its versions, in order.
    log: Vec<Version<()>>,
    /// How many of each site's versions have arrived.
    arrived: [usize; SITES],
}

#[derive(Default)]
struct World {
    sites: [Site; SITES],
    clock: u64,
    additions: Vec<i64>,
    known: BTreeMap<(Hlc, ReplicaId), Known>,
}

impl World {
    fn now(&self) -> Hlc {
        Hlc::from_wall(Micros(self.clock))
    }

    fn take(&mut self, site: usize, version: Version<()>) {
        let site = &mut self.sites[site];
        match &mut site.history {
            Some(chain) => assert!(chain.insert(version.clone())),
            none => *none = Some(Chain::new(version.clone())),
        }
        match &mut site.latest {
            Some(chain) => {
                chain.insert_latest(version);
            }
            none => *none = Some(Chain::new(version)),
        }
    }

    /// The newest version of the register at a site, and the newest count of each replica.
    fn versions(&self, site: usize) -> (Option<&Version<()>>, Vec<&Version<()>>) {
        let all = || self.sites[site].log_of(self);
        let register = all()
            .filter(|version| version.content.share().is_none())
            .max_by_key(|version| version.rank());
        let counts = (0..SITES as u16).filter_map(|replica| {
            all()
                .filter(|version| {
                    version.content.share().is_some() && version.id.replica == ReplicaId(replica)
                })
                .max_by_key(|version| version.id.at)
        });
        (register, counts.collect())
    }

    /// The additions that are not reset at a site.
    fn left(&self, site: usize) -> BTreeSet<Number> {
        let (register, counts) = self.versions(site);
        let seen = register.map(|register| self.known[&register.id.stamp()].seen.clone());
        let expired = self.gone_before(site);
        let counts = counts
            .into_iter()
            .filter(|count| expired.is_none_or(|expired| count.id.at >= expired));
        let has = counts.flat_map(|count| self.known[&count.id.stamp()].has.clone());
        let has: BTreeSet<Number> = has.collect();
        &has - &seen.unwrap_or_default()
    }

    /// What was stamped before this time has expired.
    fn gone_before(&self, site: usize) -> Option<Hlc> {
        let register = self.versions(site).0?;
        let before = self.known[&register.id.stamp()].before;
        before.max(register.content.expired_at(self.now()))
    }

    /// What a write resets: what the register before it has, and all that each replica had added up to its newest count, also what that count has left out. A change
    /// of the expiry resets only the counts of which nothing is left.
    fn seen(&self, site: usize, is_retime: bool) -> BTreeSet<Number> {
        let (register, counts) = self.versions(site);
        let before = register.map(|register| self.known[&register.id.stamp()].seen.clone());
        let mut seen = before.unwrap_or_default();
        let left = self.left(site);
        for count in counts {
            if is_retime && !self.known[&count.id.stamp()].has.is_disjoint(&left) {
                continue;
            }
            let of_replica = self.known.range((Hlc::ZERO, ReplicaId(0))..=count.id.stamp());
            let of_replica = of_replica.filter(|((_, replica), _)| *replica == count.id.replica);
            seen.extend(of_replica.flat_map(|(_, known)| known.has.clone()));
        }
        seen
    }

    fn value(&self, site: usize) -> Option<i64> {
        let (register, _) = self.versions(site);
        let written = register.and_then(|register| register.content.at(self.now()));
        let written = written.map(|value| std::str::from_utf8(value).unwrap().parse::<i64>().unwrap());
        let left = self.left(site);
        (written.is_some() || !left.is_empty()).then(|| {
            let sum: i64 = left.iter().map(|&number| self.additions[number]).sum();
            written.unwrap_or(0) + sum
        })
    }

    fn put(&mut self, site: usize, change: Change) {
        self.clock += 1;
        let (before, now) = (self.value(site), self.now());
        let replica = ReplicaId(site as u16);
        let id = VersionId { at: now, replica };
        let chain = self.sites[site].history.clone();
        let latest = self.sites[site].latest.clone();
        let make = |chain: Option<&Chain<()>>| {
            let new = change.clone().of(&Shown::all(chain), now)?;
            new.stamped(id)
        };
        let made = make(chain.as_ref());
        assert_eq!(made, make(latest.as_ref()), "both stores write the same");
        let mut known = Known::default();
        // An expiry that has passed is a delete.
        let is_delete = change.expiry() == Some(Expiry::At(Micros(1)));
        let is_retime = change.retimes().is_some() && !is_delete;
        let (seen, left) = (self.seen(site, is_retime), self.left(site));
        // A writer that has not seen any count says nothing of it.
        let (register, counts) = self.versions(site);
        let is_known =
            !counts.is_empty() || register.is_some_and(|register| !register.content.resets().is_empty());
        let before_this = self.gone_before(site).filter(|_| is_known);
        match &made {
            Ok((_, Changed::Computed(Computed::Number(sum)))) => {
                let more = change.adds().and_then(Compute::added).expect("it adds");
                let more: i64 = more.to_string().parse().unwrap();
                let expected = before.unwrap_or(0) + more;
                assert_eq!(*sum, Bytes::from(expected.to_string()));
                // What is reset altogether is left out from now on.
                let (_, counts) = self.versions(site);
                let own = counts.into_iter().find(|count| count.id.replica == replica);
                let own = own
                    .map(|own| self.known[&own.id.stamp()].has.clone())
                    .unwrap_or_default();
                known.has = match own.is_disjoint(&left) {
                    true => BTreeSet::new(),
                    false => own,
                };
                known.has.insert(self.additions.len());
                self.additions.push(more);
            }
            Ok(_) => (known.seen, known.before) = (seen, before_this),
            Err(_) => {}
        }
        if let Ok((content, changed)) = made {
            assert!(
                !matches!(changed, Changed::Made { existed } if existed != before.is_some()),
                "{changed:?}, and there was {before:?}"
            );
            let version = Version {
                id,
                content,
                meta: (),
            };
            self.known.insert(id.stamp(), known);
            self.sites[site].log.push(version.clone());
            self.take(site, version);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Add(site, more) => self.put(
                site,
                Change::new(
                    None,
                    Some(Box::new(PutOptions {
                        computes: Some(Compute::Add(more)),
                        ..PutOptions::default()
                    })),
                ),
            ),
            Step::Write(site) => {
                let value = Bytes::from((1_000 * (self.clock + 1)).to_string());
                self.put(site, Some(value).into());
            }
            Step::Delete(site) => self.put(site, None.into()),
            Step::Expire(site, after) => self.put(
                site,
                Change::new(
                    None,
                    Some(Box::new(PutOptions {
                        retimes: Some(Retimes::Any),
                        expiry: Some(match after {
                            0 => Expiry::At(Micros(1)),
                            after => Expiry::After(Micros(after)),
                        }),
                        ..PutOptions::default()
                    })),
                ),
            ),
            Step::Persist(site) => self.put(
                site,
                Change::new(
                    None,
                    Some(Box::new(PutOptions {
                        retimes: Some(Retimes::Any),
                        ..PutOptions::default()
                    })),
                ),
            ),
            Step::Deliver(from, to) if from != to => {
                let next = self.sites[to].arrived[from];
                if let Some(version) = self.sites[from].log.get(next).cloned() {
                    self.sites[to].arrived[from] += 1;
                    self.take(to, version);
                }
            }
            Step::Deliver(..) => {}
            Step::Wait(time) => self.clock += time,
            Step::Collect(site) => {
                if let Some(chain) = &mut self.sites[site].history {
                    chain.collect(|_| true);
                }
            }
        }
        for site in 0..SITES {
            let expected = self.value(site).map(|value| Bytes::from(value.to_string()));
            for chain in [&self.sites[site].history, &self.sites[site].latest] {
                let shown = Shown::all(chain.as_ref());
                assert_eq!(shown.value(self.now()), expected, "site {site}: {chain:?}");
                assert_eq!(shown.has_value(self.now()), expected.is_some());
            }
        }
    }
}

impl Site {
    /// The versions that are here.
    fn log_of<'a>(&'a self, world: &'a World) -> impl Iterator<Item = &'a Version<()>> {
        let of_others = self
            .arrived
            .iter()
            .zip(&world.sites)
            .flat_map(|(&arrived, site)| &site.log[..arrived]);
        self.log.iter().chain(of_others)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// Whatever order versions come in, each site has the additions that the oracle has, and in the end all have the same.
    #[test]
    fn sites_have_the_additions_that_they_should(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
        }
        for from in 0..SITES {
            for to in 0..SITES {
                while from != to && world.sites[to].arrived[from] < world.sites[from].log.len() {
                    world.step(&Step::Deliver(from, to));
                }
            }
        }
        let values: BTreeSet<Option<i64>> = (0..SITES).map(|site| world.value(site)).collect();
        prop_assert_eq!(values.len(), 1, "all sites have the same: {:?}", values);
    }
}

/// What a content says of counts comes back from its encoding, and is refused if it cannot be.
mod encoding {
    use super::*;
    use turnbuckle_core::{Count, Resets, SeenCount, Share, SharesRecord};

    fn id() -> VersionId {
        VersionId {
            at: Hlc(9),
            replica: ReplicaId(1),
        }
    }

    fn seen(replica: u16, at: u64, total: &str) -> SeenCount {
        let total = total.parse().unwrap();
        SeenCount {
            replica: ReplicaId(replica),
            at: Hlc(at),
            total,
        }
    }

    fn back(content: &Content) -> Result<Content, String> {
        let record = SharesRecord::decoded(SharesRecord::encoded(content, id()).into());
        let content = record.and_then(|record| SharesRecord::content(Some(record), id(), None, None, None));
        content.map_err(|error| error.found)
    }

    fn resetting(seen: Vec<SeenCount>) -> Content {
        let resets = Resets {
            seen,
            ..Resets::default()
        };
        Content::register(None, None, None, resets)
    }

    #[test]
    fn counts_come_back() {
        for total in ["0", "-5", "0.25", "79228162514264337593543950335"] {
            for at in [5, 9] {
                let count = Content::sharing(Share::from(Count {
                    since: Hlc(3),
                    at: Hlc(at),
                    total: total.parse().unwrap(),
                }));
                assert_eq!(back(&count), Ok(count));
            }
        }
        let all = vec![seen(0, 4, "7"), seen(2, 9, "-0.5")];
        let content = resetting(all);
        assert!(content.is_delete() && content.base().is_none());
        assert_eq!(back(&content), Ok(content));
        assert!(SharesRecord::encoded(&Content::DELETE, id()).is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (all, found) in [
            (
                vec![seen(2, 4, "7"), seen(0, 4, "7")],
                "replicas in another order, or one of them twice",
            ),
            (
                vec![seen(2, 4, "7"), seen(2, 4, "7")],
                "replicas in another order, or one of them twice",
            ),
            (vec![seen(2, 10, "7")], "0.10 in version 0.9@1"),
        ] {
            assert_eq!(back(&resetting(all)), Err(found.to_string()));
        }
        for (since, total, found) in [
            (10, "1", "0.10 in version 0.9@1"),
            (0, "1", "0.0 in version 0.9@1"),
        ] {
            let count = Count {
                since: Hlc(since),
                at: Hlc(9),
                total: total.parse().unwrap(),
            };
            assert_eq!(back(&Content::sharing(count.into())), Err(found.to_string()));
        }
    }

    #[test]
    fn counts_are_behind_every_version_of_the_register() {
        let count = Content::sharing(Share::from(Count {
            since: Hlc(8),
            at: Hlc(9),
            total: 1.into(),
        }));
        let (meta, at) = ((), Hlc(9));
        let replica = ReplicaId(1);
        let rank = |content: Content, at| {
            let id = VersionId { at, replica };
            Version { id, content, meta }.rank()
        };
        assert!(rank(count, at) < rank(Content::DELETE, Hlc(1)));
    }
}
