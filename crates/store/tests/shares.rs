//! Chains with shares beside a map that has all versions: what a store has, and what it counts, whatever comes in whatever order.
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use turnbuckle_core::{Content, Hlc, Key, Micros, Rank, ReplicaId, Share, Version, VersionId, Versions};
use turnbuckle_store::{Engine, MemoryEngine, Options, Store};

const KEYS: u64 = 3;
const STEPS: usize = 200;

fn drawn(random: &mut ChaCha8Rng) -> Version<()> {
    let below = |random: &mut ChaCha8Rng, below: u64| random.next_u64() % below;
    let at = Hlc::from_wall(Micros(20 + below(random, 30)));
    let replica = ReplicaId(below(random, 3) as u16);
    let value = Bytes::from(vec![b'v'; below(random, 60) as usize]);
    let content = match below(random, 5) {
        0 => Content::DELETE,
        1 => Content::from(value),
        2 => Content::new(value, Some(at.wall())),
        3 => {
            let base = VersionId {
                at: Hlc::from_wall(Micros(below(random, 20))),
                replica,
            };
            Content::with_base(value, None, Some(base))
        }
        _ => Content::sharing(Share::default()),
    };
    let id = VersionId { at, replica };
    Version {
        id,
        content,
        meta: (),
    }
}

#[test]
fn memory_is_counted_for_chains_with_shares() {
    let (mut wrapped, mut shortened) = (0, 0);
    for seed in 0..200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let table = MemoryEngine::new().open_table("t").expect("the disk works");
        let (mut store, _) = Store::open(
            table,
            Options {
                memory_limit_bytes: 1 << 20,
                history: true,
                short_lived: Micros(3),
                hash_seed: seed,
            },
        )
        .expect("an empty table opens");
        let mut model: BTreeMap<Key, BTreeMap<Rank, Content>> = BTreeMap::new();
        for _ in 0..STEPS {
            let key = Key::from(format!("key {}", random.next_u64() % KEYS).as_str());
            let version = drawn(&mut random);
            let rank = version.rank();
            let chain = model.entry(key.clone()).or_default();
            match random.next_u64() % 10 {
                0 => {
                    let gone = |rank: &Rank| rank.id.at.wall().0 % 7 == 3;
                    let expected: Vec<Rank> = chain.keys().rev().filter(|rank| gone(rank)).copied().collect();
                    assert_eq!(
                        store.forget(key.as_ref(), |version| gone(&version.rank())),
                        expected,
                        "seed {seed}"
                    );
                    chain.retain(|rank, _| !gone(rank));
                }
                1 | 2 => {
                    let any = chain
                        .keys()
                        .nth(random.next_u64() as usize % chain.len().max(1))
                        .copied();
                    let rank = any.unwrap_or(rank);
                    assert_eq!(
                        store.remove(key.as_ref(), rank),
                        chain.remove(&rank).is_some(),
                        "seed {seed}"
                    );
                }
                3 => {
                    let covered = |version: &Version<()>| version.id.at.wall().0 % 5 != 2;
                    let before = store.chain(key.as_ref()).cloned();
                    store.make_room(key.as_ref(), &covered);
                    let after = store.chain(key.as_ref());
                    if after != before.as_ref() {
                        let mut expected = before.expect("only what is there is dropped");
                        expected.make_room(covered);
                        assert_eq!(after, Some(&expected), "seed {seed}");
                        chain.retain(|rank, _| expected.holds_rank(*rank));
                        shortened += 1;
                    }
                }
                _ => {
                    let is_new = !chain.contains_key(&rank);
                    let over_shares = version.content.share().is_none() && version.content.until().is_none();
                    wrapped += usize::from(
                        over_shares && is_new && chain.values().any(|content| content.share().is_some()),
                    );
                    assert_eq!(store.put(&key, &version).is_wanted(), is_new, "seed {seed}");
                    chain.entry(rank).or_insert(version.content);
                }
            }
            store.validate();
            let found = store
                .chain(key.as_ref())
                .into_iter()
                .flat_map(|chain| chain.iter());
            let found: Vec<_> = found
                .map(|version| (version.rank(), version.content.clone()))
                .collect();
            let expected: Vec<_> = chain
                .iter()
                .rev()
                .map(|(rank, content)| (*rank, content.clone()))
                .collect();
            assert_eq!(found, expected, "seed {seed}");
        }
    }
    assert!(wrapped > 1_000, "{wrapped} values came over shares");
    assert!(shortened > 300, "{shortened} chains became shorter");
}
