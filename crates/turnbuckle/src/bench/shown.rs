//! Checks of the targets that a trace needs before the measured phase.
//!
//! The checker knows only what is in the trace. It cannot fully judge a read of a value that another run has written. So
//! before the measured phase every target must show what this run has loaded, and must not have any key that this run inserts.
//!
//! ```text
//!   target b:  GET user0 .. user255      user0 .. user200 are of this run
//!              GET user201 .. user255    all of them are; on to user256
//! ```
//!
//! A site receives the writes of other sites over several streams, one for each site and partition, which a client does not know. So
//! it is not enough to read the last record: every record is read.

use super::{shared::Shared, tally::is_of_run, target::Target};
use crate::connection::{Connection, Trouble};
use bytes::Bytes;
use std::{rc::Rc, time::Duration};
use tokio::{
    task::spawn_local,
    time::{sleep, timeout},
};
use turnbuckle_resp::Value;
use turnbuckle_workload::{Population, split_receipt};

/// How many records are asked for at once.
const WINDOW: u64 = 256;

/// How long to wait until the same records are asked for again.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until every target shows each of this number of records as this run has loaded it.
///
/// # Errors
/// If a target shows nothing new for as long as an answer may take, or the run is to end.
pub(crate) async fn wait_until_shown(shared: &Rc<Shared>, records: u64) -> Result<(), String> {
    let waiting: Vec<_> = (0..shared.targets.len())
        .map(|target| {
            let shared = shared.clone();
            spawn_local(async move { Watch::new(&shared, target).watch(records).await })
        })
        .collect();
    for task in waiting {
        task.await.expect("waiting does not panic")?;
    }
    Ok(())
}

/// The key that the workload inserts first, and the target that shows it already, if one does.
pub(crate) async fn inserted_before(
    shared: &Rc<Shared>,
    records: u64,
) -> Result<Option<(Bytes, &Target)>, Trouble> {
    let key = Population::key(records);
    for target in &shared.targets {
        let mut connection = shared.greeting.connect(&target.address, None).await?;
        let (found, _) = split_receipt(connection.call(&[&b"GET"[..], &key]).await?);
        if matches!(found, Value::Bulk(_)) {
            return Ok(Some((key, target)));
        }
    }
    Ok(None)
}

/// The check of one target.
struct Watch<'a> {
    shared: &'a Shared,
    target: &'a Target,
    connection: Option<Connection>,
    /// The last reason why a record did not count as shown.
    trouble: String,
}

impl Watch<'_> {
    fn new(shared: &Shared, target: usize) -> Watch<'_> {
        Watch {
            target: &shared.targets[target],
            shared,
            connection: None,
            trouble: String::new(),
        }
    }

    async fn watch(mut self, records: u64) -> Result<(), String> {
        let (mut window, mut next) = (Vec::new(), 0);
        let mut news_ns = self.shared.clock.now_ns();
        while !window.is_empty() || next < records {
            let until = records.min(next + WINDOW - window.len() as u64);
            window.extend(next..until);
            next = until;
            let before = window.len();
            if let Err(trouble) = self.look(&mut window).await {
                self.connection = None;
                self.trouble = trouble.to_string();
            }
            let now_ns = self.shared.clock.now_ns();
            if window.len() < before {
                news_ns = now_ns;
            } else if *self.shared.stop.borrow() {
                return Err("interrupted".into());
            } else if now_ns.saturating_sub(news_ns) >= self.shared.timeout_ns {
                return Err(self.complaint(window[0]));
            }
            if !window.is_empty() {
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    fn complaint(&self, record: u64) -> String {
        let Target { address, site } = self.target;
        format!(
            "{address} ({site}) does not show what was loaded: for {}, {}. A trace needs that: otherwise it would have reads of values \
             from before the trace. --timeout is how long to wait for a further key",
            String::from_utf8_lossy(&Population::key(record)),
            self.trouble
        )
    }

    /// Reads these records, and removes those from the list that are as loaded.
    async fn look(&mut self, window: &mut Vec<u64>) -> Result<(), Trouble> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let address = &self.target.address;
                none.insert(self.shared.greeting.connect(address, None).await?)
            }
        };
        for &record in window.iter() {
            connection.send(&[&b"GET"[..], &Population::key(record)]);
        }
        let mut missing = Vec::new();
        for &record in window.iter() {
            let reply = next_reply(connection, self.shared.timeout_ns).await?;
            if let Some(trouble) = trouble_with(&reply, &self.shared.run) {
                if missing.is_empty() {
                    self.trouble = trouble;
                }
                missing.push(record);
            }
        }
        *window = missing;
        Ok(())
    }
}

async fn next_reply(connection: &mut Connection, timeout_ns: u64) -> Result<Value, Trouble> {
    let answered = async {
        loop {
            if let Some(reply) = connection.reply()? {
                return Ok(split_receipt(reply).0);
            }
            connection.exchange().await?;
        }
    };
    timeout(Duration::from_nanos(timeout_ns), answered)
        .await
        .unwrap_or(Err(Trouble::Late))
}

/// Why an answer is not what the run has loaded, if it is not.
fn trouble_with(reply: &Value, run: &str) -> Option<String> {
    match reply {
        Value::Bulk(value) if is_of_run(value, run) => None,
        Value::Bulk(_) => Some("it has a value that this run did not write".into()),
        Value::Null => Some("it has nothing".into()),
        Value::Error(why) => Some(format!("it answers {}", String::from_utf8_lossy(why))),
        _ => Some("it answers a GET with another type of reply".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_workload::{ClientId, RunTag, ValueSize, Values};

    #[test]
    fn only_a_whole_value_of_this_run_is_what_was_loaded() {
        let tag = |seed| RunTag::of_seed(seed);
        let value = |seed| {
            let size = ValueSize::new(40).expect("a size");
            Values::new(tag(seed), ClientId::new(3), size).next_value()
        };
        let run = tag(1).to_string();
        assert_eq!(trouble_with(&Value::Bulk(value(1)), &run), None);
        for (reply, expected) in [
            (Value::Bulk(value(2)), "did not write"),
            (Value::Bulk(value(1).slice(..39)), "did not write"),
            (Value::Bulk("v".into()), "did not write"),
            (Value::Null, "nothing"),
            (Value::Error("UNAVAILABLE no".into()), "answers UNAVAILABLE no"),
            (Value::Integer(1), "another type of reply"),
        ] {
            let trouble = trouble_with(&reply, &run).expect("it is not what was loaded");
            assert!(trouble.contains(expected), "{trouble}");
        }
    }
}
