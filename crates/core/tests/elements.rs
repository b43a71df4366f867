//! Hashes and sets at several sites, whose versions arrive in drawn orders, beside an oracle that names each addition.
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{
    Chain, Change, Changed, Compute, Computed, Edit, Elements, Expiry, Hlc, KeyValue, Kind, Micros,
    NotComputed, PutOptions, ReplicaId, Retimes, SharesRecord, Shown, Version, VersionId,
};

const SITES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    /// A site changes the key. Its clock goes forward by this.
    Put(usize, Asked, u64),
    /// The next version of the first site arrives at the second one.
    Deliver(usize, usize),
    /// A site drops versions that no reader asks for any more.
    Collect(usize),
}

#[derive(Debug, Clone)]
enum Asked {
    Edit(Edit),
    Delete,
    Set,
    Increment,
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
        let options = match self {
            Asked::Edit(edit) => computing(Compute::Edit(Box::new(edit.clone()))),
            Asked::Increment => computing(Compute::Add(1)),
            Asked::Expire(at) => retiming(Some(Expiry::At(Micros(*at)))),
            Asked::Persist => retiming(None),
            Asked::Delete => return None.into(),
            Asked::Set => return Some(Bytes::from_static(b"3")).into(),
        };
        Change::new(None, Some(Box::new(options)))
    }
}

fn name() -> impl Strategy<Value = Bytes> {
    prop::sample::select(&["a", "b", "c"][..]).prop_map(Bytes::from)
}

fn edit() -> impl Strategy<Value = Edit> {
    let value = || prop::sample::select(&["5", "70", "word"][..]).prop_map(Bytes::from);
    let names = || prop::collection::vec(name(), 1..3);
    prop_oneof![
        5 => prop::collection::vec((name(), value()), 1..3).prop_map(Edit::Set),
        2 => (name(), value()).prop_map(|(name, value)| Edit::SetNew(name, value)),
        4 => (name(), -3..9_i64).prop_map(|(name, more)| Edit::Add(name, more)),
        4 => names().prop_map(|names| Edit::Remove(Kind::Hash, names)),
        1 => names().prop_map(Edit::Insert),
        1 => names().prop_map(|names| Edit::Remove(Kind::Set, names)),
    ]
}

fn step(asked: impl Strategy<Value = Asked>) -> impl Strategy<Value = Step> {
    let site = || 0..SITES;
    prop_oneof![
        8 => (site(), asked, 1..6_u64).prop_map(|(site, asked, later)| Step::Put(site, asked, later)),
        8 => (site(), site()).prop_map(|(from, to)| Step::Deliver(from, to)),
        1 => site().prop_map(Step::Collect),
    ]
}

/// One addition, of which nothing else has the number.
#[derive(Debug, Clone)]
struct Addition {
    kind: Kind,
    name: Bytes,
    /// A value that is written, or a number that is added.
    what: Result<Bytes, i64>,
    stamp: (Hlc, ReplicaId),
}

type Number = usize;

/// The fields that an edit sets, what it adds to one, and the elements that it removes.
type Parts = (Vec<(Bytes, Bytes)>, Option<(Bytes, i64)>, Vec<Bytes>);

/// What the oracle knows of a version.
#[derive(Debug, Clone, Default)]
struct Known {
    added: BTreeSet<Number>,
    removed: BTreeSet<Number>,
}

struct Site {
    history: Option<Chain<()>>,
    latest: Option<Chain<()>>,
    /// Its versions, what the oracle knows of them, and what had arrived when each was written.
    log: Vec<(Version<()>, Known, [usize; SITES])>,
    arrived: [usize; SITES],
    clock: u64,
    known: Known,
}

struct World {
    sites: Vec<Site>,
    additions: Vec<Addition>,
    /// Whether a version arrives only where everything is that its writer had seen.
    causal: bool,
}

fn take(chain: &mut Option<Chain<()>>, version: Version<()>, latest: bool) {
    match chain {
        Some(chain) if latest => {
            chain.insert_latest(version);
        }
        Some(chain) => assert!(chain.insert(version)),
        none => *none = Some(Chain::new(version)),
    }
}

impl World {
    fn new(causal: bool) -> World {
        let site = |_| Site {
            history: None,
            latest: None,
            log: Vec::new(),
            arrived: [0; SITES],
            clock: 0,
            known: Known::default(),
        };
        World {
            sites: (0..SITES).map(site).collect(),
            additions: Vec::new(),
            causal,
        }
    }

    /// What the oracle says that a site shows.
    fn elements(&self, site: usize) -> Option<Elements> {
        let known = &self.sites[site].known;
        let left = known.added.difference(&known.removed);
        let mut by_name: BTreeMap<(Kind, Bytes), Vec<&Addition>> = BTreeMap::new();
        for &number in left {
            let addition = &self.additions[number];
            by_name
                .entry((addition.kind, addition.name.clone()))
                .or_default()
                .push(addition);
        }
        let kind = by_name.keys().next()?.0;
        let value = |additions: &[&Addition]| {
            let written = additions
                .iter()
                .filter_map(|one| Some((one.stamp, one.what.clone().ok()?)));
            let written = written.max_by_key(|(stamp, _)| *stamp).map(|(_, value)| value);
            let numbers: Vec<i64> = additions
                .iter()
                .filter_map(|one| one.what.clone().err())
                .collect();
            let sum: i64 = numbers.iter().sum();
            match written {
                Some(value) if numbers.is_empty() => value,
                Some(value) => match std::str::from_utf8(&value)
                    .ok()
                    .and_then(|value| value.parse::<i64>().ok())
                {
                    Some(number) => (number + sum).to_string().into(),
                    None => value,
                },
                None => sum.to_string().into(),
            }
        };
        let of_kind = by_name.iter().filter(|((other, _), _)| *other == kind);
        Elements::new(
            kind,
            of_kind
                .map(|((_, name), additions)| (name.clone(), value(additions)))
                .collect(),
        )
    }

    /// Carries an edit or a delete out as the oracle understands it.
    fn oracle(&mut self, site: usize, asked: &Asked, stamp: (Hlc, ReplicaId)) -> (Known, Option<Changed>) {
        let before = self.elements(site);
        let known = self.sites[site].known.clone();
        let left: Vec<Number> = known.added.difference(&known.removed).copied().collect();
        let mut new = Known::default();
        let Asked::Edit(edit) = asked else {
            let existed = before.is_some();
            new.removed = left.into_iter().filter(|_| existed).collect();
            return (new, Some(Changed::Made { existed }));
        };
        let kind = edit.kind();
        if before.as_ref().is_some_and(|before| before.kind() != kind) {
            return (new, Some(Changed::NotComputed(NotComputed::WrongType)));
        }
        let has = |name: &Bytes| before.as_ref().is_some_and(|before| before.get(name).is_some());
        let of = |world: &World, name: &Bytes| {
            let is_of = |number: &&Number| {
                let addition = &world.additions[**number];
                addition.kind == kind && addition.name == *name
            };
            left.iter().filter(is_of).copied().collect::<Vec<Number>>()
        };
        let (set, add, remove): Parts = match edit {
            Edit::Set(fields) => (fields.clone(), None, vec![]),
            Edit::Insert(names) => (
                names.iter().map(|name| (name.clone(), Bytes::new())).collect(),
                None,
                vec![],
            ),
            Edit::SetNew(name, _) if has(name) => (vec![], None, vec![]),
            Edit::SetNew(name, value) => (vec![(name.clone(), value.clone())], None, vec![]),
            Edit::Add(name, more) => (vec![], Some((name.clone(), *more)), vec![]),
            Edit::Remove(_, names) => (
                vec![],
                None,
                names.iter().filter(|name| has(name)).cloned().collect(),
            ),
            Edit::AddDecimal(..) => unreachable!("it is not drawn"),
        };
        if let Some((name, more)) = add {
            let value = before.as_ref().and_then(|before| before.get(&name));
            let number = value.map_or(Some(0), |value| {
                std::str::from_utf8(value).ok()?.parse::<i64>().ok()
            });
            let Some(number) = number else {
                return (new, Some(Changed::NotComputed(NotComputed::FieldNotAnInteger)));
            };
            new.added.insert(self.additions.len());
            self.additions.push(Addition {
                kind,
                name,
                what: Err(more),
                stamp,
            });
            let sum = Bytes::from((number + more).to_string());
            return (new, Some(Changed::Computed(Computed::Number(sum))));
        }
        let removed: BTreeSet<Bytes> = remove.into_iter().collect();
        let mut names: BTreeSet<Bytes> = set.iter().map(|(name, _)| name.clone()).collect();
        let fresh = names.iter().filter(|name| !has(name)).count() + removed.len();
        names.extend(removed);
        for name in &names {
            new.removed.extend(of(self, name));
        }
        // Of a name that comes twice, the last value counts.
        let last: BTreeMap<Bytes, Bytes> = set.into_iter().collect();
        for (name, value) in last {
            new.added.insert(self.additions.len());
            self.additions.push(Addition {
                kind,
                name,
                what: Ok(value),
                stamp,
            });
        }
        (new, Some(Changed::Computed(Computed::Elements(fresh as u64))))
    }

    fn put(&mut self, site: usize, asked: &Asked, later: u64) {
        let replica = ReplicaId(site as u16);
        self.sites[site].clock += later;
        let at = Hlc::from_wall(Micros(self.sites[site].clock));
        let id = VersionId { at, replica };
        let change = asked.change();
        let make = |chain: Option<&Chain<()>>| change.clone().of(&Shown::all(chain), at)?.stamped(id);
        let made = make(self.sites[site].history.as_ref());
        assert_eq!(
            made,
            make(self.sites[site].latest.as_ref()),
            "both stores write the same"
        );
        let told = match &made {
            Ok((_, changed)) | Err(changed) => changed.clone(),
        };
        let mut known = Known::default();
        if self.causal {
            let (new, expected) = self.oracle(site, asked, id.stamp());
            assert_eq!(Some(told), expected, "{asked:?} at site {site}");
            known = new;
        }
        let Ok((content, _)) = made else {
            assert!(known.added.is_empty() && known.removed.is_empty());
            return;
        };
        // As a peer or a restarted node gets it.
        let record = SharesRecord::decoded(SharesRecord::encoded(&content, id).into()).expect("it decodes");
        let record = SharesRecord::of(&content, id).map(|_| record);
        let base = content.base().filter(|_| content.share().is_none());
        let back = SharesRecord::content(record, id, content.stored().cloned(), content.until(), base);
        assert_eq!(back.as_ref().ok(), Some(&content));
        let version = Version {
            id,
            content: content.compact(),
            meta: (),
        };
        let here = &mut self.sites[site];
        here.log.push((version.clone(), known.clone(), here.arrived));
        here.arrived[site] += 1;
        self.arrive(site, version, known);
    }

    fn arrive(&mut self, site: usize, version: Version<()>, known: Known) {
        let here = &mut self.sites[site];
        here.clock = here.clock.max(version.id.at.wall().0);
        here.known.added.extend(known.added);
        here.known.removed.extend(known.removed);
        take(&mut here.history, version.clone(), false);
        take(&mut here.latest, version, true);
    }

    /// Whether something arrived.
    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let next = self.sites[to].arrived[from];
        let Some((version, known, seen)) = self.sites[from].log.get(next).cloned() else {
            return false;
        };
        let is_ready =
            || (0..SITES).all(|other| other == from || self.sites[to].arrived[other] >= seen[other]);
        if from == to || self.causal && !is_ready() {
            return false;
        }
        self.sites[to].arrived[from] += 1;
        self.arrive(to, version, known);
        true
    }

    fn shown(&self, site: usize, now: Hlc) -> Option<KeyValue> {
        let chain = |chain: &Option<Chain<()>>| Shown::all(chain.as_ref()).whole(now);
        let (history, latest) = (chain(&self.sites[site].history), chain(&self.sites[site].latest));
        assert_eq!(history, latest, "site {site}");
        let has_value = Shown::all(self.sites[site].history.as_ref()).has_value(now);
        assert_eq!(has_value, history.is_some());
        history
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(site, asked, later) => self.put(*site, asked, *later),
            Step::Deliver(from, to) => {
                self.deliver(*from, *to);
            }
            Step::Collect(site) => {
                if let Some(chain) = &mut self.sites[*site].history {
                    chain.collect(|_| true);
                }
            }
        }
        for site in 0..SITES {
            let now = Hlc::from_wall(Micros(self.sites[site].clock));
            let shown = self.shown(site, now);
            if self.causal {
                let expected = self
                    .elements(site)
                    .map(|elements| KeyValue::Elements(elements.into()));
                assert_eq!(shown, expected, "site {site} after {step:?}");
            }
        }
    }

    fn deliver_all(&mut self) {
        loop {
            let pairs = (0..SITES).flat_map(|from| (0..SITES).map(move |to| (from, to)));
            let mut any = false;
            for (from, to) in pairs {
                any |= self.deliver(from, to);
            }
            if !any {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// If versions arrive in causal order, each site shows what the oracle does, and each writer is told the same.
    #[test]
    fn sites_have_the_elements_that_they_should(
        steps in prop::collection::vec(
            step(prop_oneof![9 => edit().prop_map(Asked::Edit), 1 => Just(Asked::Delete)]),
            1..60,
        )
    ) {
        let mut world = World::new(true);
        for step in &steps {
            world.step(step);
        }
        world.deliver_all();
        let shown: Vec<_> = (0..SITES).map(|site| world.shown(site, Hlc::LATEST)).collect();
        let expected = world.elements(0).map(|elements| KeyValue::Elements(elements.into()));
        prop_assert!(shown.iter().all(|shown| *shown == expected), "{shown:?} and not {expected:?}");
    }

    /// In whatever order versions arrive, and whatever else is written under the key, in the end all sites show the same at any time.
    #[test]
    fn sites_agree_in_the_end(
        steps in prop::collection::vec(
            step(prop_oneof![
                9 => edit().prop_map(Asked::Edit),
                2 => Just(Asked::Delete),
                1 => Just(Asked::Set),
                1 => Just(Asked::Increment),
                2 => (1..150_u64).prop_map(Asked::Expire),
                1 => Just(Asked::Persist),
            ]),
            1..60,
        )
    ) {
        let mut world = World::new(false);
        for step in &steps {
            world.step(step);
        }
        world.deliver_all();
        let last = world.sites.iter().map(|site| site.clock).max().unwrap_or(0);
        for now in [last, last + 100, last + 1_000] {
            let now = Hlc::from_wall(Micros(now));
            let shown: Vec<_> = (0..SITES).map(|site| world.shown(site, now)).collect();
            prop_assert!(shown.iter().all(|other| *other == shown[0]), "{shown:?}");
        }
    }
}

fn put(world: &mut World, site: usize, asked: &Asked) {
    world.step(&Step::Put(site, asked.clone(), 1));
}

fn set(name: &'static str, value: &'static str) -> Asked {
    Asked::Edit(Edit::Set(vec![(name.into(), value.into())]))
}

/// Two sites delete a hash of which each has seen a part. In the end nothing is left: of two deletes, both count.
#[test]
fn two_deletes_remove_what_both_have_seen() {
    let mut world = World::new(false);
    put(&mut world, 0, &set("a", "1"));
    put(&mut world, 1, &set("b", "2"));
    put(&mut world, 0, &Asked::Delete);
    put(&mut world, 1, &Asked::Delete);
    world.deliver_all();
    assert_eq!(world.shown(2, Hlc::LATEST), None);
}

/// A hash that expires is gone as a whole, with what was written to it until then. What is written later stays, and a new expiry does not bring the old fields back.
#[test]
fn a_hash_expires_as_a_whole() {
    let mut world = World::new(false);
    put(&mut world, 0, &set("a", "1"));
    put(&mut world, 0, &Asked::Expire(50));
    world.deliver_all();
    // Site 1 has not heard that it expires later than it writes.
    put(&mut world, 1, &set("b", "2"));
    let at = |time| Hlc::from_wall(Micros(time));
    assert!(world.shown(1, at(49)).is_some());
    assert_eq!(world.shown(1, at(50)), None);
    world.sites[2].clock = 60;
    put(&mut world, 2, &set("c", "3"));
    // It has not seen the field of site 1, which has expired all the same.
    put(&mut world, 2, &Asked::Expire(500));
    world.deliver_all();
    let c = Elements::new(Kind::Hash, vec![("c".into(), "3".into())]).unwrap();
    for site in 0..SITES {
        assert_eq!(
            world.shown(site, at(70)),
            Some(KeyValue::Elements(c.clone().into()))
        );
        assert_eq!(world.shown(site, at(500)), None);
    }
}

/// Who removes the last element removes the expiry, too: what is added later does not expire.
#[test]
fn with_its_last_element_a_key_loses_its_expiry() {
    let mut world = World::new(false);
    put(&mut world, 0, &set("a", "1"));
    put(&mut world, 0, &Asked::Expire(50));
    let remove = |name: &'static str| Asked::Edit(Edit::Remove(Kind::Hash, vec![name.into()]));
    put(&mut world, 0, &remove("a"));
    put(&mut world, 0, &set("b", "2"));
    world.deliver_all();
    let b = Elements::new(Kind::Hash, vec![("b".into(), "2".into())]).unwrap();
    assert_eq!(world.shown(1, Hlc::LATEST), Some(KeyValue::Elements(b.into())));
}

/// A string hides a hash that was written at the same time. Who deletes the string deletes the hash, too.
#[test]
fn a_string_wins_over_a_hash_while_it_has_a_value() {
    let mut world = World::new(false);
    put(&mut world, 0, &set("a", "1"));
    put(&mut world, 1, &Asked::Set);
    world.deliver_all();
    for site in 0..SITES {
        assert_eq!(world.shown(site, Hlc::LATEST), Some(KeyValue::Bytes("3".into())));
    }
    put(&mut world, 2, &set("a", "1"));
    assert_eq!(world.sites[2].log.len(), 0, "it is of the wrong type");
    put(&mut world, 2, &Asked::Delete);
    world.deliver_all();
    assert_eq!(world.shown(0, Hlc::LATEST), None);
}

/// What a site adds to a key is bounded. What it removes is not.
#[test]
fn a_site_adds_no_more_than_it_may() {
    let mut world = World::new(false);
    let large = Bytes::from(vec![b'x'; Edit::MAX_BYTES - 100]);
    put(
        &mut world,
        0,
        &Asked::Edit(Edit::Set(vec![("a".into(), large.clone())])),
    );
    put(&mut world, 0, &Asked::Edit(Edit::Insert(vec!["m".into()])));
    let more = Asked::Edit(Edit::Set(vec![("b".into(), large)]));
    let change = more.change();
    let id = VersionId {
        at: Hlc::from_wall(Micros(99)),
        replica: ReplicaId(0),
    };
    let shown = Shown::all(world.sites[0].history.as_ref());
    let refused = change
        .clone()
        .of(&shown, id.at)
        .and_then(|new| new.stamped(id))
        .err();
    assert_eq!(refused, Some(Changed::NotComputed(NotComputed::TooManyElements)));
    put(
        &mut world,
        0,
        &Asked::Edit(Edit::Remove(Kind::Hash, vec!["a".into()])),
    );
    assert_eq!(world.shown(0, Hlc::LATEST), None);
}
