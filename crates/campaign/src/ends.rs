//! What all sites show once the cluster has come to rest.
use crate::{
    Connection,
    clients::named,
    cluster::{Cluster, Keyspace, NODES_OF_A_SITE, SITES, nodes_of},
    ledger::Shown,
    recorder::Recorder,
};
use bytes::Bytes;
use std::{
    io,
    time::{Duration, Instant},
};
use turnbuckle_resp::Value;
use turnbuckle_workload::{Octets, Op, Record, Status, split_receipt};

/// The number of keys that are asked for at once.
const AT_ONCE: usize = 64;
/// The most reads that a site may refuse before it is not asked for a while: each may have waited for the operation's deadline.
const MAX_REFUSED: usize = 4;
/// How long a key may stay unreadable, and sites may differ, although the cluster is at rest.
const PATIENCE: Duration = Duration::from_secs(20);

/// What sites show, and the reads by which they were asked.
pub struct Ends {
    /// For each key, in the order asked for, what each site shows. `None` if the site refused the read to the end.
    pub shown: Vec<[Option<Shown>; SITES.len()]>,
    /// Each site's answer when it last refused a read.
    pub refusals: [String; SITES.len()],
    /// The reads, for the trace.
    pub records: Vec<Record>,
}

/// Asks every site for every key. Asks again while a site refuses or sites differ.
///
/// # Errors
/// If a node does not answer at all.
pub fn read(
    cluster: &Cluster,
    keyspace: &Keyspace,
    recorder: &Recorder,
    name: &str,
    keys: &[Bytes],
) -> io::Result<Ends> {
    let mut ends = Ends {
        shown: vec![Default::default(); keys.len()],
        refusals: Default::default(),
        records: Vec::new(),
    };
    let mut patience = None;
    let mut open: Vec<usize> = (0..keys.len()).collect();
    let mut round = 0;
    while !open.is_empty() {
        for (site, site_name) in SITES.iter().enumerate() {
            let mut reader = Reader::connect(cluster, keyspace, site, round)?;
            let session = format!("{name}-{site_name}-{round}");
            for part in open.chunks(AT_ONCE) {
                reader.read(part, keys, recorder, &session, &mut ends)?;
                if reader.refused > MAX_REFUSED {
                    break;
                }
            }
        }
        open.retain(|&place| !is_agreed(&ends.shown[place]));
        // The first pass takes as long as the number of keys requires, so the time is measured from its end.
        let begun: &Instant = patience.get_or_insert_with(Instant::now);
        if begun.elapsed() > PATIENCE {
            break;
        }
        if !open.is_empty() {
            std::thread::park_timeout(Duration::from_millis(500));
        }
        round += 1;
    }
    Ok(ends)
}

fn is_agreed(shown: &[Option<Shown>; SITES.len()]) -> bool {
    shown[0].is_some() && shown.iter().all(|site| *site == shown[0])
}

/// A connection to a site.
struct Reader {
    connection: Connection,
    site: usize,
    refused: usize,
}

impl Reader {
    fn connect(cluster: &Cluster, keyspace: &Keyspace, site: usize, round: usize) -> io::Result<Reader> {
        let node = nodes_of(site).start + round % NODES_OF_A_SITE;
        let mut connection = Connection::open(cluster.resp_port(node), PATIENCE)?;
        let name = keyspace.name.as_str();
        for command in [&["HELLO", "3"][..], &["RECEIPTS", "ON"], &["SELECT", name]] {
            connection.call(command)?;
        }
        Ok(Reader {
            connection,
            site,
            refused: 0,
        })
    }

    fn read(
        &mut self,
        part: &[usize],
        keys: &[Bytes],
        recorder: &Recorder,
        session: &str,
        ends: &mut Ends,
    ) -> io::Result<()> {
        let get = Bytes::from_static(b"GET");
        let commands: Vec<Vec<Bytes>> = part
            .iter()
            .map(|&place| vec![get.clone(), keys[place].clone()])
            .collect();
        let start_ns = recorder.now_ns();
        self.connection.send(&commands)?;
        for (lane, &place) in part.iter().enumerate() {
            let (reply, receipt) = split_receipt(self.connection.read()?);
            let value = match reply {
                Value::Bulk(value) => Some(named(&value)),
                Value::Null => None,
                other => {
                    ends.refusals[self.site] = format!("{other:?}");
                    self.refused += 1;
                    if self.refused > MAX_REFUSED {
                        return Ok(());
                    }
                    continue;
                }
            };
            let (receipt, version) = receipt.unzip();
            let version = version.flatten();
            ends.shown[place][self.site] = Some(Shown {
                value: value.clone(),
                version: version.as_deref().and_then(|version| version.parse().ok()),
            });
            ends.records.push(Record {
                // Operations of one session may not overlap.
                client: format!("{session}~{lane}"),
                site: SITES[self.site].to_owned(),
                op: Op::Read,
                key: Octets(keys[place].clone()),
                value,
                start_ns,
                finish_ns: Some(recorder.now_ns()),
                status: Status::Ok,
                version,
                level: None,
                receipt,
                recorder: None,
                pipelined: false,
                existed: false,
                reads: None,
            });
        }
        Ok(())
    }
}
