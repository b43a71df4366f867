//! A transaction beside the same steps one after the other: the answers are the same, and so is what is shown afterwards.
use bytes::Bytes;
use proptest::prelude::*;
use turnbuckle_core::{
    Answer, Chain, Change, Compute, Condition, Edit, Expiry, Hlc, Key, Kind, Lifetime, Micros, NetEffect,
    PutOptions, ReplicaId, Retimes, Shown, Step, Version, VersionId,
};

/// When the transaction is carried out.
const NOW: Micros = Micros(1_000);

fn expiry() -> impl Strategy<Value = Option<Expiry>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(Expiry::After(Micros(500)))),
        1 => Just(Some(Expiry::After(Micros(90)))),
        1 => Just(Some(Expiry::At(Micros(1)))),
        1 => Just(Some(Expiry::Kept)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || Key::from("x");
    let put = move |value: Option<&'static [u8]>, options: PutOptions| {
        Step::Put(key(), value.map(Bytes::from_static), Some(Box::new(options)))
    };
    let value = prop_oneof![Just(&b"7"[..]), Just(&b"words"[..])];
    let condition = prop_oneof![
        Just(None),
        Just(Some(Condition::Absent)),
        Just(Some(Condition::Present))
    ];
    let decided = (
        prop::option::of(value.clone()),
        expiry(),
        condition,
        any::<bool>(),
    );
    let compute = prop_oneof![
        Just(Compute::Append(Bytes::from_static(b"0"))),
        Just(Compute::Overwrite(2, Bytes::from_static(b"1"))),
        Just(Compute::Overwrite(3, Bytes::new())),
    ];
    let names = || prop::collection::vec(prop::sample::select(&["a", "b"][..]).prop_map(Bytes::from), 1..3);
    let edit = prop_oneof![
        3 => names().prop_map(|names| Edit::Set(names.into_iter().map(|name| (name, Bytes::from_static(b"7"))).collect())),
        1 => Just(Edit::SetNew("a".into(), "8".into())),
        2 => (-3..5_i64).prop_map(|more| Edit::Add("a".into(), more)),
        2 => names().prop_map(|names| Edit::Remove(Kind::Hash, names)),
        1 => names().prop_map(Edit::Insert),
    ];
    prop_oneof![
        6 => edit.prop_map(move |edit| {
            put(None, PutOptions { computes: Some(Compute::Edit(Box::new(edit))), ..PutOptions::default() })
        }),
        3 => decided.prop_map(move |(value, expiry, condition, returns_previous)| {
            let expiry = expiry.filter(|_| value.is_some());
            put(value, PutOptions { expiry, condition, returns_previous, ..PutOptions::default() })
        }),
        2 => compute.prop_map(move |compute| {
            put(None, PutOptions { computes: Some(compute), ..PutOptions::default() })
        }),
        2 => Just(Step::Get(key())),
        1 => Just(Step::Lifetime(key())),
        3 => (value, expiry()).prop_map(move |(value, expiry)| {
            put(Some(value), PutOptions { expiry, ..PutOptions::default() })
        }),
        2 => Just(put(None, PutOptions::default())),
        4 => (-3..5_i64).prop_map(move |more| {
            put(None, PutOptions { computes: Some(Compute::Add(more)), ..PutOptions::default() })
        }),
        3 => (prop::sample::select(&Retimes::ALL[..]), expiry(), any::<bool>()).prop_map(
            move |(retimes, expiry, returns_previous)| {
                let expiry = expiry.filter(|expiry| *expiry != Expiry::Kept);
                put(None, PutOptions { retimes: Some(retimes), expiry, returns_previous, ..PutOptions::default() })
            }
        ),
    ]
}

fn id(at: Hlc) -> VersionId {
    let replica = ReplicaId(1);
    VersionId { at, replica }
}

fn insert(chain: &mut Option<Chain<()>>, version: Version<()>) {
    match chain {
        Some(chain) => assert!(chain.insert(version)),
        none => *none = Some(Chain::new(version)),
    }
}

/// Carries out a step alone.
fn alone(chain: &mut Option<Chain<()>>, step: &Step, at: Hlc) -> Answer {
    let shown = Shown::all(chain.as_ref());
    match step {
        Step::Get(_) => shown.whole(at).into(),
        Step::Lifetime(_) => Answer::Lifetime(Lifetime::new(shown.has_value(at), shown.until(at))),
        Step::Put(_, value, options) => {
            let change = Change::new(value.clone(), options.clone());
            let made = change.of(&shown, at).and_then(|new| new.stamped(id(at)));
            match made {
                Ok((content, changed)) => {
                    let meta = ();
                    let id = id(at);
                    insert(chain, Version { id, content, meta });
                    changed.into()
                }
                Err(changed) => changed.into(),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn a_transaction_does_what_its_steps_do(
        before in prop::collection::vec((step(), 0..300_u64), 0..6),
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let (mut chain, mut at) = (None, Micros(10));
        for (step, later) in &before {
            at = Micros((at.0 + later).min(NOW.0 - 1));
            let mut stamp = Hlc::from_wall(at);
            while chain.as_ref().is_some_and(|chain: &Chain<()>| chain.iter().any(|held| held.id.at >= stamp)) {
                stamp = stamp.next();
            }
            alone(&mut chain, step, stamp);
        }
        let name = id(Hlc::from_wall(NOW));
        let mut effect = NetEffect::new(name);
        let mut one_by_one = chain.clone();
        let mut stamp = name.at;
        for step in &steps {
            let told: Answer = effect.carry_out(step, &Shown::all(chain.as_ref())).into();
            stamp = stamp.next();
            prop_assert_eq!(told, alone(&mut one_by_one, step, stamp), "{:?} on {:?}", step, chain);
        }
        for (_, version) in effect.into_versions(()) {
            insert(&mut chain, version);
        }
        let (left, right) = (Shown::all(chain.as_ref()), Shown::all(one_by_one.as_ref()));
        for later in [0, 89, 90, 499, 500, 10_000] {
            let now = Hlc(Hlc::from_wall(Micros(NOW.0 + later)).0 + 50);
            prop_assert_eq!(left.value(now), right.value(now), "after {}us: {:?} and {:?}", later, left, right);
            prop_assert_eq!(left.until(now), right.until(now));
        }
        // What is added later goes on from there.
        let add = Step::Put(Key::from("x"), None, Some(Box::new(PutOptions {
            computes: Some(Compute::Add(100)),
            ..PutOptions::default()
        })));
        let next = Hlc::from_wall(Micros(NOW.0 + 1));
        let told = alone(&mut chain, &add, next);
        prop_assert_eq!(told, alone(&mut one_by_one, &add, next));
    }
}

/// An addition that the count has no room for is refused, and nothing of it is lost silently.
#[test]
fn an_addition_that_has_no_room_is_refused() {
    let add = |more: &str| {
        let compute = Compute::AddDecimal(more.parse().unwrap());
        let options = PutOptions {
            computes: Some(compute),
            ..PutOptions::default()
        };
        Step::Put(Key::from("x"), None, Some(Box::new(options)))
    };
    let most = "79228162514264337593543950335";
    let mut chain = None;
    alone(&mut chain, &add(most), Hlc::from_wall(Micros(1)));
    // The value is small again, and the replica's own count is not.
    let other = Version {
        id: VersionId {
            at: Hlc::from_wall(Micros(2)),
            replica: ReplicaId(2),
        },
        content: turnbuckle_core::Content::sharing(turnbuckle_core::Share::from(turnbuckle_core::Count {
            since: Hlc::from_wall(Micros(2)),
            at: Hlc::from_wall(Micros(2)),
            total: format!("-{most}").parse().unwrap(),
        })),
        meta: (),
    };
    insert(&mut chain, other);
    let mut effect = NetEffect::new(id(Hlc::from_wall(NOW)));
    let told: Answer = effect.carry_out(&add("1"), &Shown::all(chain.as_ref())).into();
    assert_eq!(told, alone(&mut chain.clone(), &add("1"), Hlc::from_wall(NOW)));
    assert!(matches!(told, Answer::NotComputed(_)), "{told:?}");
    assert_eq!(effect.into_versions(()).count(), 0);
}
