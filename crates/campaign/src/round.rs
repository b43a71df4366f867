//! One round: load and faults, then no faults, then the judgement.
use crate::{
    clients::{self, Client, Shared},
    cluster::{Cluster, Keyspace, NODES, SITES, Start, node_name},
    ends,
    fault::{self, Kind},
    keys,
    ledger::{Ledger, Shown, Verdict},
    notes::{Loss, Notes, WrongClock},
    operator::Operator,
    options::Options,
    recorder::Recorder,
    report::RoundReport,
    trace,
    watch::{Watch, unrest},
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use turnbuckle_workload::{Octets, Record, Status};

/// How long the cluster may take to come to rest, on a machine that is busy with all its nodes.
pub const REST_PATIENCE: Duration = Duration::from_secs(90);
/// How long clients go on after all faults are over.
const PEACE: Duration = Duration::from_secs(2);
/// The number of ballast keys of a keyspace, except for the one that has most.
const BALLAST_KEYS: u64 = 2_000;
/// The most times that the keys of a keyspace are read again if a node meets damage meanwhile.
const MAX_REREADS: u32 = 3;
/// The most examples that are reported of each kind of wrong result.
const EXAMPLES: usize = 3;

/// State that all rounds share.
pub struct Rounds<'a> {
    /// The nodes.
    pub cluster: &'a Cluster,
    /// The watch that observes the nodes.
    pub watch: &'a Watch,
    /// The clock.
    pub recorder: Recorder,
    /// The options of the campaign.
    pub options: &'a Options,
    /// The faults that may happen.
    pub kinds: Vec<Kind>,
    /// Whether a signal has asked for the end.
    pub interrupted: &'a AtomicBool,
    /// The ledger of each keyspace.
    pub ledgers: Vec<Ledger>,
    /// Losses of earlier rounds after which a keyspace could not be read, by keyspace: its keys are judged later.
    pub carried: Vec<Vec<Loss>>,
}

/// The results of the clients and the operator.
struct Brought {
    clients: Vec<clients::Round>,
    told: Notes,
}

impl Rounds<'_> {
    /// Runs a round and judges it.
    pub fn run(&mut self, number: u32) -> RoundReport {
        let mut brought = self.torment(number);
        let mut report = RoundReport {
            round: number,
            ..RoundReport::default()
        };
        let begun = Instant::now();
        if let Err(why) = self.rest(&mut brought.told.losses) {
            report.broken.push(format!(
                "round {number}: the cluster does not come to rest within {} s: {why}",
                REST_PATIENCE.as_secs()
            ));
        }
        report.rest_seconds = begun.elapsed().as_secs_f64();
        if self.interrupted.load(Ordering::Acquire) {
            return report;
        }
        let Brought { clients, told } = brought;
        report.broken.extend(told.broken);
        report.broken.extend(self.watch.take_ended());
        report.events = told.events;
        let mut clients = clients.into_iter();
        let of_each = usize::from(self.options.clients);
        for place in 0..self.cluster.keyspaces().len() {
            let of_keyspace: Vec<_> = clients.by_ref().take(of_each).collect();
            self.judge(
                place,
                number,
                of_keyspace,
                &told.losses,
                &told.wrong_clocks,
                &mut report,
            );
        }
        report.at_seconds = self.recorder.seconds();
        report
    }

    /// Lets clients work while faults come and go, until everything is healed.
    fn torment(&mut self, number: u32) -> Brought {
        let planned = fault::draw(self.options.seed, number, &self.kinds, self.options.round * 1_000);
        let (stop_faults, stop_clients) = (AtomicBool::new(false), AtomicBool::new(false));
        let hurry = AtomicUsize::new(0);
        let operator = Operator::new(self.cluster, self.watch, self.recorder, &stop_faults, &hurry);
        let shared: Vec<Shared<'_>> = self
            .cluster
            .keyspaces()
            .iter()
            .map(|keyspace| Shared {
                cluster: self.cluster,
                keyspace,
                recorder: self.recorder,
                round: number,
                stop: &stop_clients,
                hurry: &hurry,
                told: Mutex::default(),
            })
            .collect();
        let begun = Instant::now();
        let clients = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (place, shared) in shared.iter().enumerate() {
                for of_keyspace in 0..self.options.clients {
                    let client_number = place as u16 * self.options.clients + of_keyspace;
                    let mut client = Client::new(shared, self.options.seed, client_number, of_keyspace == 0);
                    if of_keyspace == 0 {
                        client.sweep(self.old_keys(place, number));
                    }
                    client.load(self.ballast(place, number, of_keyspace));
                    threads.push(scope.spawn(move || client.work()));
                }
            }
            let faults = scope.spawn(|| operator.run(&planned, begun));
            self.wait(Duration::from_secs(self.options.round));
            stop_faults.store(true, Ordering::Release);
            let healed = faults.join();
            self.cluster.heal_all();
            self.wait(PEACE);
            stop_clients.store(true, Ordering::Release);
            let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            if let Err(panic) = healed {
                std::panic::resume_unwind(panic);
            }
            let done = done.into_iter();
            done.map(|round| round.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        Brought {
            clients,
            told: operator.take_notes(),
        }
    }

    /// The ballast keys that a client of a keyspace writes in a round. All are written in the first round, and one keyspace has many more
    /// than the others.
    fn ballast(&self, place: usize, number: u32, of_keyspace: u16) -> Range<u64> {
        let laden = self.options.seed as usize % self.cluster.keyspaces().len();
        let count = match number {
            1 if place == laden => self.options.ballast,
            1 => BALLAST_KEYS,
            _ => 0,
        };
        let part = |client: u16| count * u64::from(client) / u64::from(self.options.clients);
        part(of_keyspace)..part(of_keyspace + 1)
    }

    /// The keys of the round before the last one, which are deleted in this one.
    fn old_keys(&self, place: usize, number: u32) -> Vec<Bytes> {
        let is_old = |key: &&Bytes| keys::round_of(key).is_some_and(|round| round + 2 == number);
        self.ledgers[place]
            .keys()
            .keys()
            .filter(is_old)
            .cloned()
            .collect()
    }

    /// Waits until the cluster is at rest twice in a row. Nodes that ask for it, because their directory is an old copy, are emptied: they
    /// may notice that only when the last link is up again.
    ///
    /// # Errors
    /// If it is not at rest in time: the reason.
    pub fn rest(&self, losses: &mut Vec<Loss>) -> Result<(), String> {
        let begun = Instant::now();
        let mut calm = 0;
        loop {
            for node in (0..NODES).filter(|&node| self.cluster.is_outdated(node)) {
                losses.push(Loss {
                    node,
                    from_ns: self.watch.handed_on_ns(node),
                    to_ns: self.recorder.now_ns(),
                });
                self.cluster.kill(node);
                let emptied = self.cluster.empty(node);
                let started = emptied.and_then(|()| self.cluster.start(node));
                if !matches!(started, Ok(Start::Ready)) {
                    return Err(format!(
                        "{} does not start on an empty directory: {started:?}",
                        node_name(node)
                    ));
                }
            }
            match unrest(self.cluster) {
                None => calm += 1,
                Some(_) if begun.elapsed() < REST_PATIENCE && !self.is_interrupted() => calm = 0,
                Some(why) => return Err(why),
            }
            if calm == 2 {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(250));
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    fn wait(&self, span: Duration) {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.is_interrupted() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    // ---- judgement --------------------------------------------------------------------------------------------

    fn judge(
        &mut self,
        place: usize,
        number: u32,
        clients: Vec<clients::Round>,
        losses: &[Loss],
        clocks: &[WrongClock],
        report: &mut RoundReport,
    ) {
        let keyspace = &self.cluster.keyspaces()[place];
        let mut records = Vec::new();
        for client in clients {
            records.extend(client.records);
            report.pairs += client.pairs;
            report.moves += client.moves;
            for (word, count) in client.errors {
                *report.errors.entry(word).or_default() += count;
            }
            for untrue in client.untrue {
                let told = &untrue.told;
                let is_excused = losses.iter().any(|loss| {
                    loss.node == told.node && told.at_ns >= loss.from_ns && told.at_ns <= loss.to_ns
                });
                match is_excused {
                    true => report.pairs_excused += 1,
                    false => report.broken.push(format!(
                        "round {number}, {}: causality: {}",
                        keyspace.name, untrue.what
                    )),
                }
            }
        }
        for record in records.iter().filter(|record| record.status == Status::Ok) {
            report.operations += 1;
            report.acknowledged += u64::from(crate::is_write(record));
        }
        records.iter().for_each(|record| self.ledgers[place].add(record));
        let when = format!("round {number}");
        let reads = self.judge_ends(place, &when, losses, report);
        records.extend(reads);
        // Deletes of keys of earlier rounds are not part of this round's trace.
        records.retain(|record| record.reads.is_some() || keys::round_of(&record.key.0) == Some(number));
        let mut shows = trace::excuse(&mut records, losses, clocks);
        trace::judge(&records, keyspace, &mut shows);
        let traces = self.cluster.directory().join("traces");
        if let Err(error) = trace::write(&records, &traces, number, keyspace, shows.broken.is_empty()) {
            report.broken.push(format!("{}: {error}", traces.display()));
        }
        let broken = shows.broken.iter();
        report
            .broken
            .extend(broken.map(|what| format!("{when}, {}: trace: {what}", keyspace.name)));
        report.traces.insert(keyspace.name.clone(), shows);
        self.ledgers[place].forget(|key| keys::round_of(key).is_some_and(|round| round + 3 <= number));
    }

    /// Compares what all sites show of a keyspace with its ledger. Returns the reads.
    pub fn judge_ends(
        &mut self,
        place: usize,
        when: &str,
        losses: &[Loss],
        report: &mut RoundReport,
    ) -> Vec<Record> {
        let (cluster, recorder) = (self.cluster, self.recorder);
        let keyspace = &cluster.keyspaces()[place];
        let name = &keyspace.name;
        let all: Vec<Bytes> = self.ledgers[place].keys().keys().cloned().collect();
        report.keys += all.len() as u64;
        let session = format!("end-{}", when.replace(' ', "-"));
        let read = || ends::read(cluster, keyspace, &recorder, &session, &all);
        let mut ends = read();
        let may_meet_damage = || (0..NODES).any(|node| cluster.is_damaged(node));
        let mut lost_meanwhile = Vec::new();
        for _ in 0..MAX_REREADS {
            // A node that meets damage closes its connections, and opens its tables again.
            if ends.is_ok() || !may_meet_damage() || self.rest(&mut lost_meanwhile).is_err() {
                break;
            }
            report.reread += 1;
            ends = read();
        }
        let known = self.carried[place].iter().chain(losses);
        let losses: Vec<Loss> = known.chain(&lost_meanwhile).copied().collect();
        let losses = losses.as_slice();
        let ends = match ends {
            Ok(ends) => ends,
            Err(error) => {
                report
                    .broken
                    .push(format!("{when}, {name}: the keys cannot be read: {error}"));
                self.carried[place] = losses.to_vec();
                return Vec::new();
            }
        };
        self.carried[place].clear();
        let mut wrongs: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (key, shown) in all.iter().zip(&ends.shown) {
            let Some(shown) = shown.iter().cloned().collect::<Option<Vec<Shown>>>() else {
                let refused = shown.iter().position(Option::is_none).unwrap_or(0);
                let where_to = format!("{key:?} at {} ({})", SITES[refused], ends.refusals[refused]);
                wrongs.entry("a key cannot be read").or_default().push(where_to);
                continue;
            };
            let verdict = self.ledgers[place].keys()[key].judge(&shown, losses);
            for gone in &verdict.excused {
                let node = gone.node.map(node_name).unwrap_or_default();
                report
                    .excused
                    .push(format!("{name}: {key:?} of {} ({node})", gone.version));
            }
            if let Some((wrong, site)) = verdict.wrong {
                let example = self.example(key, &shown, &verdict, site);
                wrongs.entry(wrong.about()).or_default().push(example);
            }
            match verdict.wrong {
                None => self.ledgers[place].rebase(key, &shown[0]),
                Some(_) => self.ledgers[place].remove(key),
            }
        }
        for (what, mut examples) in wrongs {
            let count = examples.len();
            examples.truncate(EXAMPLES);
            report.broken.push(format!(
                "{when}, {name}: {what}: {count} keys, such as {}",
                examples.join("; ")
            ));
        }
        ends.records
    }

    fn example(&self, key: &Bytes, shown: &[Shown], verdict: &Verdict, site: usize) -> String {
        let value = |value: &Option<Octets>| match value {
            Some(Octets(value)) => String::from_utf8_lossy(value).into_owned(),
            None => "nothing".to_owned(),
        };
        let each = SITES.iter().zip(shown).map(|(site, shown)| {
            let version = shown.version.as_ref().map(|version| format!(" of {version}"));
            format!("{site} {}{}", value(&shown.value), version.unwrap_or_default())
        });
        let expected = match &verdict.expected {
            Some(expected) => {
                let by = expected.node.map(|node| format!(" by {}", node_name(node)));
                format!(
                    "{} of {}, acknowledged{}",
                    value(&expected.value),
                    expected.version,
                    by.unwrap_or_default()
                )
            }
            None => "nothing".to_owned(),
        };
        format!(
            "{} at {} (shown: {}; expected {expected})",
            String::from_utf8_lossy(key),
            SITES[site],
            each.collect::<Vec<_>>().join(", ")
        )
    }
}

/// The keyspaces' names.
pub fn names(keyspaces: &[Keyspace]) -> Vec<String> {
    keyspaces
        .iter()
        .map(|keyspace| format!("{} ({})", keyspace.protocol, keyspace.durability))
        .collect()
}
