use crate::{Engine, EngineError, Table, TableWrite};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};

/// What any engine must do, as a test. Call it from a `#[test]`. `make` makes a new, empty engine each time it is
/// called, and returns a function that opens that engine. If it is opened again (never twice at the same time), it has
/// the same data.
///
/// # Panics
/// With a sentence that says what the engine did wrong.
pub fn engine_suite(make: impl Fn() -> Box<dyn Fn() -> Arc<dyn Engine>>) {
    for rule in [
        rows_are_read_as_written,
        of_two_writes_in_a_batch_the_later_wins,
        ranges_are_ordered_and_bounded,
        a_snapshot_stands_still,
        tables_are_apart,
        a_removed_table_comes_back_empty,
        what_is_persisted_is_there_when_opened_again,
        rows_beyond_the_limits_are_refused,
        bad_names_are_refused,
        random_batches_agree_with_a_map,
    ] {
        rule(&*make()).expect("the engine failed where nothing can fail");
    }
}

type Outcome = Result<(), EngineError>;
type Open = dyn Fn() -> Arc<dyn Engine>;

fn put(key: &[u8], value: &[u8]) -> TableWrite {
    TableWrite::put(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
}

fn delete(key: &[u8]) -> TableWrite {
    TableWrite::delete(Bytes::copy_from_slice(key))
}

fn all_rows(table: &dyn Table) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
    table.snapshot()?.range(b"", &[255; 9], usize::MAX, usize::MAX)
}

fn rows_are_read_as_written(open: &Open) -> Outcome {
    let table = open().open_table("t")?;
    assert_eq!(table.get(b"a")?, None, "a row that was never written");
    table.apply(vec![put(b"a", b"1"), put(b"b", b""), put(&[0, 255], b"bin")])?;
    assert_eq!(table.get(b"a")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(table.get(b"b")?.as_deref(), Some(&b""[..]), "an empty value");
    assert_eq!(table.get(&[0, 255])?.as_deref(), Some(&b"bin"[..]));
    table.apply(vec![delete(b"a"), delete(b"never"), put(b"b", b"2")])?;
    assert_eq!(table.get(b"a")?, None, "a removed row");
    assert_eq!(table.get(b"b")?.as_deref(), Some(&b"2"[..]));
    table.apply(Vec::new())
}

fn of_two_writes_in_a_batch_the_later_wins(open: &Open) -> Outcome {
    let table = open().open_table("t")?;
    table.apply(vec![
        put(b"a", b"1"),
        delete(b"a"),
        put(b"b", b"1"),
        put(b"b", b"2"),
    ])?;
    assert_eq!(table.get(b"a")?, None, "put, then delete");
    assert_eq!(table.get(b"b")?.as_deref(), Some(&b"2"[..]), "put, then put");
    table.apply(vec![delete(b"a"), put(b"a", b"3")])?;
    assert_eq!(table.get(b"a")?.as_deref(), Some(&b"3"[..]), "delete, then put");
    Ok(())
}

fn ranges_are_ordered_and_bounded(open: &Open) -> Outcome {
    let table = open().open_table("t")?;
    table.apply((0..100).rev().map(|n: u8| put(&[n], &[n; 10])).collect())?;
    let snapshot = table.snapshot()?;
    let keys = |rows: Vec<(Bytes, Bytes)>| rows.iter().map(|(key, _)| key[0]).collect::<Vec<_>>();
    assert_eq!(
        keys(snapshot.range(&[10], &[13], 99, 9999)?),
        [10, 11, 12],
        "from is in, until is out"
    );
    assert_eq!(
        keys(snapshot.range(&[10], &[90], 2, 9999)?),
        [10, 11],
        "the limit of rows"
    );
    assert_eq!(
        keys(snapshot.range(&[10], &[90], 99, 22)?),
        [10, 11],
        "the limit of bytes"
    );
    assert_eq!(
        keys(snapshot.range(&[10], &[90], 99, 1)?),
        [10],
        "at least one row"
    );
    assert_eq!(
        keys(snapshot.range(&[10], &[90], 0, 0)?),
        [10],
        "at least one row"
    );
    assert!(
        snapshot.range(&[100], &[200], 99, 9999)?.is_empty(),
        "nothing there"
    );
    assert!(
        snapshot.range(&[20], &[10], 99, 9999)?.is_empty(),
        "backwards is empty"
    );
    assert!(
        snapshot.range(&[20], &[20], 99, 9999)?.is_empty(),
        "nothing between"
    );
    Ok(())
}

fn a_snapshot_stands_still(open: &Open) -> Outcome {
    let table = open().open_table("t")?;
    table.apply(vec![put(b"a", b"1"), put(b"b", b"1")])?;
    let before = table.snapshot()?;
    table.apply(vec![put(b"a", b"2"), delete(b"b"), put(b"c", b"2")])?;
    assert_eq!(before.get(b"a")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(before.get(b"b")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(before.get(b"c")?, None);
    assert_eq!(before.range(b"a", b"z", 99, 9999)?.len(), 2);
    let after = table.snapshot()?;
    assert_eq!(
        after.range(b"a", b"z", 99, 9999)?,
        [("a".into(), "2".into()), ("c".into(), "2".into())]
    );
    Ok(())
}

fn tables_are_apart(open: &Open) -> Outcome {
    let engine = open();
    let (one, other) = (engine.open_table("one")?, engine.open_table("other")?);
    one.apply(vec![put(b"a", b"1")])?;
    assert_eq!(other.get(b"a")?, None, "a row of another table");
    assert_eq!(engine.table_names()?, ["one", "other"]);
    let again = engine.open_table("one")?;
    assert_eq!(
        again.get(b"a")?.as_deref(),
        Some(&b"1"[..]),
        "the same table, opened twice"
    );
    Ok(())
}

fn a_removed_table_comes_back_empty(open: &Open) -> Outcome {
    let engine = open();
    let table = engine.open_table("t")?;
    table.apply(vec![put(b"a", b"1")])?;
    drop(table);
    engine.remove_table("t")?;
    engine.remove_table("never")?;
    assert!(
        engine.table_names()?.is_empty(),
        "a removed table is still listed"
    );
    let table = engine.open_table("t")?;
    assert_eq!(table.get(b"a")?, None, "a row of the table before");
    Ok(())
}

fn what_is_persisted_is_there_when_opened_again(open: &Open) -> Outcome {
    let engine = open();
    let table = engine.open_table("t")?;
    table.apply(vec![put(b"a", b"1"), put(b"b", b"1")])?;
    table.apply(vec![delete(b"b")])?;
    engine.open_table("empty")?;
    engine.persist()?;
    drop((table, engine));
    let engine = open();
    assert_eq!(engine.table_names()?, ["empty", "t"]);
    assert_eq!(
        all_rows(&*engine.open_table("t")?)?,
        [("a".into(), "1".into())],
        "after opening again"
    );
    Ok(())
}

fn rows_beyond_the_limits_are_refused(open: &Open) -> Outcome {
    let table = open().open_table("t")?;
    let longest = vec![7; TableWrite::LONGEST_KEY_BYTES];
    table.apply(vec![put(&longest, b"1")])?;
    assert_eq!(
        table.get(&longest)?.as_deref(),
        Some(&b"1"[..]),
        "the longest key"
    );
    let longer = vec![7; TableWrite::LONGEST_KEY_BYTES + 1];
    for bad in [put(&longer, b""), put(b"", b"")] {
        let refused = table.apply(vec![put(b"a", b"1"), bad]);
        assert!(
            matches!(refused, Err(EngineError::TooLarge { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(table.get(b"a")?, None, "a row of a batch that was refused");
    Ok(())
}

fn bad_names_are_refused(open: &Open) -> Outcome {
    let engine = open();
    for name in [String::new(), "x".repeat(256)] {
        let refused = engine.open_table(&name).map(|_| ());
        assert!(matches!(refused, Err(EngineError::BadName { .. })), "{refused:?}");
    }
    engine.open_table(&"x".repeat(255)).map(|_| ())
}

fn random_batches_agree_with_a_map(open: &Open) -> Outcome {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: u64| {
        // SplitMix64: other crates that run this suite need not pass a generator.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    };
    let mut engine = open();
    let mut table = engine.open_table("t")?;
    let mut model = BTreeMap::new();
    for round in 0..200 {
        let mut batch = Vec::new();
        for _ in 0..draw(20) {
            let key = draw(100).to_be_bytes();
            if draw(3) == 0 {
                model.remove(&key[..]);
                batch.push(delete(&key));
            } else {
                let value = vec![draw(256) as u8; draw(200) as usize];
                batch.push(put(&key, &value));
                model.insert(Bytes::copy_from_slice(&key), Bytes::from(value));
            }
        }
        table.apply(batch)?;
        if round % 50 == 49 {
            engine.persist()?;
            drop((table, engine));
            engine = open();
            table = engine.open_table("t")?;
        }
        let rows: BTreeMap<Bytes, Bytes> = all_rows(&*table)?.into_iter().collect();
        assert_eq!(rows, model, "after batch {round}");
    }
    Ok(())
}
