//! The next operation of a client: reads, writes and deletes of single keys, snapshots, pipelines, moves, and pairs in which one write
//! tells of another.
use super::{Answer, Client, Job, Lost, Told, Untrue};
use crate::{
    cluster::{SITES, lock, site_of},
    keys::{self, Class},
};
use bytes::Bytes;
use turnbuckle_workload::{Octets, Status};

/// The most operations of a pipeline.
const MAX_PIPELINE: u64 = 6;

impl Client<'_> {
    /// Carries out an operation that is drawn.
    pub(super) fn act(&mut self) -> Result<(), Lost> {
        let draw = self.random.below(100);
        if !self.ballast.is_empty() {
            return self.write_ballast();
        }
        if !self.sweep.is_empty() && draw < 50 {
            return self.sweep_some();
        }
        if self.is_bulk {
            return match draw {
                0..75 => self.write_large(),
                75..95 => self.read_some(Class::Bulk),
                95..99 => self.delete_some(Class::Bulk),
                _ => self.move_on(),
            };
        }
        match draw {
            0..6 => self.write_some(Class::Hot),
            6..18 => self.write_some(Class::Warm),
            18..24 => self.read_some(Class::Hot),
            24..36 => self.read_some(Class::Warm),
            36..40 => self.read_some(Class::Bulk),
            40..44 => self.write_some(Class::Fickle),
            44..47 => self.delete_some(Class::Fickle),
            47..51 => self.read_some(Class::Fickle),
            51..60 => self.tell_of_photo(),
            60..69 => self.read_comment(),
            69..75 => self.begin_churn(),
            75..81 => self.tell_of_delete(),
            81..87 => self.read_gone(),
            87..92 => self.read_snapshot(),
            92..96 => self.ask_at_once(),
            _ => self.move_on(),
        }
    }

    fn some_key(&mut self, class: Class) -> Bytes {
        let number = keys::any(&mut self.random, class);
        keys::key(self.shared.round, class, number)
    }

    fn write_some(&mut self, class: Class) -> Result<(), Lost> {
        let job = Job::write(self.some_key(class), self.small.next_value());
        self.one(job).map(drop)
    }

    /// Writes one large value; several, if a node is to be left behind.
    fn write_large(&mut self) -> Result<(), Lost> {
        let count = if self.is_hurried() { 3 } else { 1 };
        let write = |_| {
            let key = self.some_key(Class::Bulk);
            Job::write(key, self.large.next_value())
        };
        let jobs = (0..count).map(write).collect();
        self.pipeline(jobs).map(drop)
    }

    fn read_some(&mut self, class: Class) -> Result<(), Lost> {
        let job = Job::read(self.some_key(class));
        self.one(job).map(drop)
    }

    fn delete_some(&mut self, class: Class) -> Result<(), Lost> {
        let job = Job::delete(self.some_key(class));
        self.one(job).map(drop)
    }

    /// Deletes some keys of an earlier round. A failed delete is not tried again: that key stays.
    fn sweep_some(&mut self) -> Result<(), Lost> {
        const SOME: usize = 12;
        let rest = self.sweep.len().saturating_sub(SOME);
        let jobs = self.sweep.split_off(rest).into_iter().map(Job::delete).collect();
        self.pipeline(jobs).map(drop)
    }

    fn write_ballast(&mut self) -> Result<(), Lost> {
        const SOME: u64 = 400;
        let next = self.ballast.end.min(self.ballast.start + SOME);
        let write = |number| Job::write(keys::ballast(number), self.medium.next_value());
        let jobs = (self.ballast.start..next).map(write).collect();
        self.pipeline(jobs)?;
        // If the connection is lost, they are written once more.
        self.ballast.start = next;
        Ok(())
    }

    /// Sends some operations without waiting for the answers between them.
    fn ask_at_once(&mut self) -> Result<(), Lost> {
        let count = 2 + self.random.below(MAX_PIPELINE - 1);
        let mut jobs = Vec::new();
        for _ in 0..count {
            let key = self.some_key(Class::Warm);
            jobs.push(match self.random.below(3) {
                0 => Job::read(key),
                _ => Job::write(key, self.small.next_value()),
            });
        }
        self.pipeline(jobs).map(drop)
    }

    fn read_snapshot(&mut self) -> Result<(), Lost> {
        if !self.shared.keyspace.has_snapshots() {
            return self.read_some(Class::Warm);
        }
        let pair = keys::any(&mut self.random, Class::Photo);
        let round = self.shared.round;
        let mut keys = vec![
            keys::key(round, Class::Comment, pair),
            keys::key(round, Class::Photo, pair),
        ];
        let warm = self.some_key(Class::Warm);
        keys.push(warm);
        self.snapshot(&keys)
    }

    // ---- pairs ------------------------------------------------------------------------------------------------

    /// Writes a photo, then a comment on it.
    fn tell_of_photo(&mut self) -> Result<(), Lost> {
        let pair = keys::any(&mut self.random, Class::Photo);
        let photo = keys::key(self.shared.round, Class::Photo, pair);
        let comment = keys::key(self.shared.round, Class::Comment, pair);
        let job = Job::write(photo.clone(), self.small.next_value());
        let answer = self.one(job)?;
        self.tell(photo, answer, comment, false)
    }

    fn read_comment(&mut self) -> Result<(), Lost> {
        let comment = self.some_key(Class::Comment);
        self.read_told(comment)
    }

    fn begin_churn(&mut self) -> Result<(), Lost> {
        let key = keys::churn(self.shared.round, self.number, self.churned);
        self.churned += 1;
        let job = Job::write(key.clone(), self.small.next_value());
        if self.one(job)?.status == Status::Ok {
            self.ripe.push_back(key);
        }
        Ok(())
    }

    /// Deletes a key that the client has written, and writes a value that tells of it.
    fn tell_of_delete(&mut self) -> Result<(), Lost> {
        // By then the other sites have mostly seen the key.
        const KEPT: usize = 4;
        if self.ripe.len() <= KEPT {
            return self.begin_churn();
        }
        let key = self.ripe.pop_front().expect("there are some");
        let answer = self.one(Job::delete(key.clone()))?;
        let gone = self.some_key(Class::Gone);
        self.tell(key, answer, gone, true)
    }

    fn read_gone(&mut self) -> Result<(), Lost> {
        let gone = self.some_key(Class::Gone);
        self.read_told(gone)
    }

    /// Writes a value that tells what was done to `key`, if it was done.
    fn tell(&mut self, key: Bytes, done: Answer, by: Bytes, is_delete: bool) -> Result<(), Lost> {
        let (Status::Ok, Some(version), Some(node)) = (done.status, done.version, done.node) else {
            return Ok(());
        };
        let job = Job::write(by, self.small.next_value());
        let told = Told {
            key,
            version,
            is_delete,
            node,
            at_ns: done.at_ns,
        };
        if let Some((_, Octets(label))) = &job.value {
            lock(&self.shared.told).insert(label.clone(), told);
        }
        self.one(job).map(drop)
    }

    /// Reads a value that tells of a key, and then that key.
    fn read_told(&mut self, by: Bytes) -> Result<(), Lost> {
        let Some(Octets(label)) = self.one(Job::read(by.clone()))?.value else {
            return Ok(());
        };
        let Some(told) = lock(&self.shared.told).get(&label).cloned() else {
            return Ok(());
        };
        // Sometimes the key is read at another site.
        if self.random.below(4) == 0 {
            self.move_on()?;
        }
        let found = self.one(Job::read(told.key.clone()))?;
        if found.status != Status::Ok || !self.shared.keyspace.is_causal() {
            return Ok(());
        }
        self.round.pairs += 1;
        if told.is_kept_by(&found) {
            return Ok(());
        }
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let found_text = match (&found.value, &found.version) {
            (Some(Octets(value)), Some(version)) => format!("{} of {version}", text(value)),
            (Some(Octets(value)), None) => text(value),
            (None, Some(version)) => format!("nothing, of {version}"),
            (None, None) => "nothing".to_owned(),
        };
        let what = format!(
            "{} read {} of {} and then, at {}, found {found_text} at {}, but {} was {} with {} before that",
            self.session(),
            text(&label),
            text(&by),
            SITES[site_of(self.node)],
            text(&told.key),
            text(&told.key),
            if told.is_delete { "deleted" } else { "written" },
            told.version,
        );
        self.round.untrue.push(Untrue { told, what });
        Ok(())
    }
}

impl Told {
    /// Whether a later read shows what was told, or something newer.
    fn is_kept_by(&self, found: &Answer) -> bool {
        match (&found.version, &found.value) {
            (Some(version), _) => *version >= self.version,
            // A delete need not be remembered.
            (None, None) => self.is_delete,
            (None, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_must_be_found_or_what_is_newer() {
        let told = |is_delete| Told {
            key: Bytes::from_static(b"photo"),
            version: "5.0@a".parse().expect("a stamp"),
            is_delete,
            node: 0,
            at_ns: 0,
        };
        let found = |version: Option<&str>, value: Option<&str>| Answer {
            status: Status::Ok,
            value: value.map(Octets::from),
            version: version.map(|version| version.parse().expect("a stamp")),
            node: None,
            at_ns: 0,
        };
        for (is_delete, version, value, is_kept) in [
            (false, Some("5.0@a"), Some("v"), true),
            (false, Some("6.0@b"), None, true),
            (false, Some("4.0@a"), Some("u"), false),
            (false, None, None, false),
            (true, Some("5.0@a"), None, true),
            (true, None, None, true),
            (true, Some("4.0@a"), Some("u"), false),
        ] {
            assert_eq!(
                told(is_delete).is_kept_by(&found(version, value)),
                is_kept,
                "{version:?} {value:?}"
            );
        }
    }
}
