//! Sites that forget a key with shares, beside the same sites that never forget anything. At every step both show the same.
use bytes::Bytes;
use proptest::prelude::*;
use turnbuckle_core::{
    Chain, Change, Changed, Compute, Edit, Expiry, Hlc, KeyValue, Kind, Micros, PutOptions, ReplicaId,
    Retimes, SharesRecord, Shown, Version, VersionId,
};

const SITES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    /// A site changes the key. Its clock goes forward by this.
    Put(usize, Asked, u64),
    /// A site tells the others how far it is. Its clock goes forward by this.
    Report(usize, u64),
    /// The next version or report of the first site arrives at the second one.
    Deliver(usize, usize),
    /// All sites tell each other how far they are, twice, and everything arrives. All clocks go forward by this.
    Settle(u64),
    /// A site forgets the key, if it may.
    Forget(usize),
}

#[derive(Debug, Clone)]
enum Asked {
    Edit(Edit),
    Delete,
    Set(Option<u64>),
    Add(i64),
    /// The value expires after this.
    Expire(u64),
    Persist,
}

impl Asked {
    fn change(&self) -> Change {
        let computing = |compute| PutOptions {
            computes: Some(compute),
            ..PutOptions::default()
        };
        let retiming = |expiry| PutOptions {
            retimes: Some(Retimes::Any),
            expiry,
            ..PutOptions::default()
        };
        let after = |span: &u64| Expiry::After(Micros(*span));
        let options = match self {
            Asked::Edit(edit) => computing(Compute::Edit(Box::new(edit.clone()))),
            Asked::Add(more) => computing(Compute::Add(*more)),
            Asked::Expire(span) => retiming(Some(after(span))),
            Asked::Persist => retiming(None),
            Asked::Delete => return None.into(),
            Asked::Set(span) => PutOptions {
                expiry: span.as_ref().map(after),
                ..PutOptions::default()
            },
        };
        let value = matches!(self, Asked::Set(_)).then(|| Bytes::from_static(b"100"));
        Change::new(value, Some(Box::new(options)))
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let name = || prop::sample::select(&["a", "b"][..]).prop_map(Bytes::from);
    let names = move || prop::collection::vec(name(), 1..3);
    let edit = prop_oneof![
        3 => (name(), name()).prop_map(|(name, value)| Edit::Set(vec![(name, value)])),
        1 => (name(), 1..4_i64).prop_map(|(name, more)| Edit::Add(name, more)),
        4 => names().prop_map(|names| Edit::Remove(Kind::Hash, names)),
    ];
    prop_oneof![
        4 => edit.prop_map(Asked::Edit),
        4 => (1..9_i64).prop_map(Asked::Add),
        3 => Just(Asked::Delete),
        2 => prop::option::of(1..9_u64).prop_map(Asked::Set),
        3 => (1..9_u64).prop_map(Asked::Expire),
        1 => Just(Asked::Persist),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let site = || 0..SITES;
    prop_oneof![
        6 => (site(), asked(), 1..4_u64).prop_map(|(site, asked, later)| Step::Put(site, asked, later)),
        8 => (site(), site()).prop_map(|(from, to)| Step::Deliver(from, to)),
        4 => (site(), 1..6_u64).prop_map(|(site, later)| Step::Report(site, later)),
        3 => (1..12_u64).prop_map(Step::Settle),
        8 => site().prop_map(Step::Forget),
    ]
}

/// What one site has sent to the others, in this order.
#[derive(Debug, Clone)]
enum Sent {
    Version(Version<()>),
    Report(Report),
}

#[derive(Debug, Clone, Copy, Default)]
struct Report {
    /// Everything that the site stamps later is above this.
    promise: Hlc,
    /// Everything that any site stamped up to this time is shown there.
    shown: Hlc,
    closed: Hlc,
}

#[derive(Default)]
struct Site {
    chain: Option<Chain<()>>,
    clock: u64,
    sent: Vec<Sent>,
    arrived: [usize; SITES],
    heard: [Report; SITES],
    closed: Hlc,
}

/// What the sites do about a key that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// A version gets a floor, but no site forgets the key.
    NeverForget,
    Forget,
    /// Planted: a version gets no floor.
    AddNoFloors,
    /// Planted: a site forgets what is closed at itself.
    AskNobody,
}

struct World {
    sites: Vec<Site>,
    rules: Rules,
    /// Whether sites keep only the newest version.
    latest: bool,
    /// How often a site has forgotten the key while another one had not.
    forgot: usize,
}

/// As it comes back from a disk or a peer.
fn sent_on(version: &Version<()>) -> Version<()> {
    let (id, content) = (version.id, &version.content);
    let base = content.base().filter(|_| content.share().is_none());
    let record = SharesRecord::is_needed(content).then(|| SharesRecord::encoded(content, id));
    let record = record.map(|bytes| SharesRecord::decoded(bytes.into()).expect("it decodes"));
    let decoded = SharesRecord::content(record, id, content.stored().cloned(), content.until(), base);
    let content = decoded.expect("it is valid");
    assert_eq!(content, version.content);
    Version {
        id,
        content,
        meta: (),
    }
}

impl World {
    fn new(rules: Rules, latest: bool) -> World {
        World {
            sites: (0..SITES).map(|_| Site::default()).collect(),
            rules,
            latest,
            forgot: 0,
        }
    }

    fn take(&mut self, at: usize, version: Version<()>) -> Version<()> {
        let (rules, latest) = (self.rules, self.latest);
        let site = &mut self.sites[at];
        let chain = site.chain.as_ref().filter(|_| rules != Rules::AddNoFloors);
        let floor = chain.map_or(Hlc::ZERO, |chain| chain.floor(site.closed));
        let version = version.with_floor(floor);
        match &mut site.chain {
            Some(chain) if latest => {
                chain.insert_latest(version.clone());
            }
            Some(chain) => assert!(chain.insert(version.clone())),
            none => *none = Some(Chain::new(version.clone())),
        }
        version
    }

    fn put(&mut self, at: usize, asked: &Asked, later: u64) -> Changed {
        let site = &mut self.sites[at];
        let now = Hlc::from_wall(Micros(site.clock));
        site.clock += later;
        let id = VersionId {
            at: Hlc::from_wall(Micros(site.clock)),
            replica: ReplicaId(at as u16),
        };
        let shown = Shown::all(site.chain.as_ref());
        let new = match asked.change().of(&shown, now) {
            Ok(new) => new,
            Err(changed) => return changed,
        };
        let (content, changed) = match new.stamped(id) {
            Ok(stamped) => stamped,
            Err(changed) => return changed,
        };
        let version = Version {
            id,
            content,
            meta: (),
        };
        let version = self.take(at, version);
        self.sites[at].sent.push(Sent::Version(version));
        changed
    }

    fn report(&mut self, at: usize, later: u64) {
        let site = &mut self.sites[at];
        site.clock += later;
        let promise = Hlc::from_wall(Micros(site.clock));
        let others = || (0..SITES).filter(|&other| other != at);
        let shown = others().map(|other| site.heard[other].promise).min();
        let shown = shown.unwrap_or_default().min(promise);
        let everywhere = others().map(|other| site.heard[other].shown).min();
        site.closed = site.closed.max(everywhere.unwrap_or_default().min(shown));
        let closed = site.closed;
        let report = Report {
            promise,
            shown,
            closed,
        };
        site.heard[at] = report;
        site.sent.push(Sent::Report(report));
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let next = self.sites[to].arrived[from];
        let Some(sent) = self.sites[from].sent.get(next).filter(|_| from != to) else {
            return;
        };
        let sent = sent.clone();
        let site = &mut self.sites[to];
        site.arrived[from] += 1;
        match sent {
            Sent::Report(report) => {
                site.clock = site.clock.max(report.promise.wall().0);
                site.heard[from] = report;
            }
            Sent::Version(version) => {
                site.clock = site.clock.max(version.id.at.wall().0);
                self.take(to, sent_on(&version));
            }
        }
    }

    fn settle(&mut self, later: u64) {
        for _ in 0..2 {
            (0..SITES).for_each(|site| self.report(site, later));
            for (from, to) in (0..SITES).flat_map(|from| (0..SITES).map(move |to| (from, to))) {
                while from != to && self.sites[to].arrived[from] < self.sites[from].sent.len() {
                    self.deliver(from, to);
                }
            }
        }
    }

    fn forget(&mut self, at: usize) {
        let site = &self.sites[at];
        let Some(chain) = &site.chain else { return };
        let everywhere = site.heard.iter().map(|report| report.closed).min();
        let closed = match chain.concerns_shares() && self.rules != Rules::AskNobody {
            true => everywhere.unwrap_or_default(),
            false => site.closed,
        };
        if self.rules != Rules::NeverForget && chain.gone().is_some_and(|gone| gone.at <= closed) {
            self.forgot += usize::from(chain.concerns_shares());
            self.sites[at].chain = None;
        }
    }

    fn step(&mut self, step: &Step) -> Option<Changed> {
        match step {
            Step::Put(site, asked, later) => return Some(self.put(*site, asked, *later)),
            Step::Report(site, later) => self.report(*site, *later),
            Step::Deliver(from, to) => self.deliver(*from, *to),
            Step::Settle(later) => self.settle(*later),
            Step::Forget(site) => self.forget(*site),
        }
        None
    }

    /// What each site shows, and when it expires.
    fn shown(&self) -> Vec<(Option<KeyValue>, Option<Micros>)> {
        let of = |site: &Site| {
            let (shown, now) = (
                Shown::all(site.chain.as_ref()),
                Hlc::from_wall(Micros(site.clock)),
            );
            let value = shown.whole(now);
            let until = value.as_ref().and_then(|_| shown.until(now));
            (value, until)
        };
        self.sites.iter().map(of).collect()
    }
}

/// Carries out the steps in two worlds. Returns what differs first, and how often a key with shares was forgotten.
fn compare(steps: &[Step], rules: Rules, latest: bool) -> (Option<String>, usize) {
    let (mut world, mut whole) = (World::new(rules, latest), World::new(Rules::NeverForget, latest));
    for (number, step) in steps.iter().chain([&Step::Settle(20)]).enumerate() {
        let (told, should) = (world.step(step), whole.step(step));
        if told != should {
            return (
                Some(format!("step {number}: {told:?}, not {should:?}")),
                world.forgot,
            );
        }
        let (shown, should) = (world.shown(), whole.shown());
        if shown != should {
            return (
                Some(format!("step {number}: {shown:?}, not {should:?}")),
                world.forgot,
            );
        }
    }
    (None, world.forgot)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn sites_that_forget_show_what_sites_show_that_never_forget(steps in steps(), latest: bool) {
        let (differs, _) = compare(&steps, Rules::Forget, latest);
        prop_assert_eq!(differs, None);
    }
}

/// The number of worlds of some thousand in which a site shows something else, and how often a key was forgotten.
fn found(rules: Rules) -> (usize, usize) {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut worlds, mut times) = (0, 0);
    for number in 0..4_000 {
        let steps = steps().new_tree(&mut runner).expect("it draws").current();
        let (differs, forgot) = compare(&steps, rules, number % 2 == 0);
        worlds += usize::from(differs.is_some());
        times += forgot;
    }
    (worlds, times)
}

#[test]
fn keys_are_forgotten_and_without_either_rule_they_come_back() {
    let (differ, forgot) = found(Rules::Forget);
    assert!(differ == 0 && forgot > 500, "{differ} differ, {forgot} forgotten");
    for planted in [Rules::AddNoFloors, Rules::AskNobody] {
        let (differ, _) = found(planted);
        assert!(differ > 0, "{planted:?}");
    }
}
