//! An entry of a group's log: a write of this site or of another one, or what a leader notes.
use crate::sites::{Link, Place, Sites};
use bytes::{Bytes, BytesMut};
use prost::Message;
use turnbuckle_core::{
    Changed, Content, Hlc, Key, Label, Micros, ReplicaId, SiteId, Unmet, Version, VersionId,
};
use turnbuckle_raft::OperationName;

/// An entry.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    /// The site that has stamped it.
    #[prost(uint32, tag = "1")]
    site: u32,
    /// Its epoch there, its timestamp, and the timestamp of the entry before it.
    #[prost(fixed64, tag = "2")]
    epoch: u64,
    #[prost(fixed64, tag = "3")]
    at: u64,
    #[prost(fixed64, tag = "4")]
    before: u64,
    #[prost(oneof = "Work", tags = "5, 6, 7")]
    pub work: Option<Work>,
    /// A write: the session that has asked for it, and its number for the operation. Other sites are not told.
    #[prost(fixed64, tag = "8")]
    session: u64,
    #[prost(uint64, tag = "9")]
    tag: u64,
    /// How far its timestamp was ahead of its leader's clock, in microseconds.
    #[prost(uint64, tag = "10")]
    ahead: u64,
}

/// What an entry does.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Work {
    /// It puts a version.
    #[prost(message, tag = "5")]
    Write(Write),
    /// It begins an epoch of its site.
    #[prost(message, tag = "6")]
    Begin(Begin),
    /// It says how far all sites are.
    #[prost(message, tag = "7")]
    Mark(Mark),
}

/// The beginning of an epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Begin {
    /// What its leader had of each site ([`Sites`]). A replica of the site that has less takes a full copy.
    #[prost(bytes = "bytes", tag = "1")]
    sites: Bytes,
    /// The leader, by its number among the site's members. If it is not the first epoch, it has taken full copies of the other sites, and the others take one of it.
    #[prost(uint32, tag = "2")]
    pub member: u32,
}

impl Begin {
    pub fn with(sites: &Sites, member: u16) -> Begin {
        let mut out = BytesMut::new();
        sites.put(&mut out);
        Begin {
            sites: out.freeze(),
            member: member.into(),
        }
    }

    pub fn sites(&self) -> Sites {
        // It was checked when it was decoded.
        Sites::decode_from(&mut self.sites.clone()).unwrap_or_default()
    }
}

/// A write.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Write {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value; none for a delete.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
    /// Whether the key had a value before, as far as the leader knew. Other sites are not told.
    #[prost(bool, tag = "3")]
    pub existed: bool,
    /// Whether it puts nothing: a delete that finds no value, or a change of an expiry that is not made. It has an entry, so that it is found if its session asks again.
    #[prost(bool, tag = "4")]
    pub puts_nothing: bool,
    /// The version that it has found, if there is one and it puts nothing.
    #[prost(fixed64, tag = "5")]
    found_at: u64,
    #[prost(uint32, tag = "6")]
    found_site: u32,
    /// When the value expires that it puts or, if it puts nothing, that it has found: in microseconds since 1970, plus 1. 0: never.
    #[prost(fixed64, tag = "7")]
    until: u64,
    /// The version that wrote the value that it puts or has found, if that is another one.
    #[prost(fixed64, tag = "8")]
    base_at: u64,
    #[prost(uint32, tag = "9")]
    base_site: u32,
    /// Whether it only changes an expiry, and whether its answer has the value. Other sites are not told.
    #[prost(bool, tag = "10")]
    retimes: bool,
    #[prost(bool, tag = "11")]
    returns_value: bool,
}

/// The version of this time and site; 0 for none.
fn version_of(at: u64, site: u32) -> Option<VersionId> {
    let replica = ReplicaId::from(SiteId(site as u16));
    let at = Hlc(at);
    (at > Hlc::ZERO).then_some(VersionId { at, replica })
}

fn named(version: Option<VersionId>) -> (u64, u32) {
    version.map_or((0, 0), |id| (id.at.0, id.replica.site().0.into()))
}

impl Write {
    /// A put, and its answer.
    pub fn of(key: Bytes, content: &Content, changed: Changed) -> Write {
        let (base_at, base_site) = named(content.base());
        let write = Write {
            key,
            value: content.stored().cloned(),
            until: content.until().map_or(0, |until| until.0 + 1),
            base_at,
            base_site,
            ..Write::default()
        };
        write.answered(changed)
    }

    /// A write that puts nothing, its answer, and the version that it has found.
    pub fn nothing(key: Bytes, found: Option<Label>, changed: Changed) -> Write {
        let (found_at, found_site) = named(found.map(|found| found.id));
        let (base_at, base_site) = named(found.and_then(|found| found.base));
        let until = found.and_then(|found| found.until);
        let write = Write {
            key,
            puts_nothing: true,
            found_at,
            found_site,
            until: until.map_or(0, |until| until.0 + 1),
            base_at,
            base_site,
            ..Write::default()
        };
        write.answered(changed)
    }

    fn answered(self, changed: Changed) -> Write {
        match changed {
            Changed::Made { existed } => Write { existed, ..self },
            // What would be answered so is refused before.
            Changed::Computed(_) | Changed::NotComputed(_) | Changed::Replaced(_) => self,
            Changed::Retimed(_) => Write {
                existed: true,
                retimes: true,
                returns_value: true,
                ..self
            },
            Changed::Unmet(unmet) => Write {
                existed: unmet.has_value,
                retimes: true,
                returns_value: unmet.value.is_some(),
                value: unmet.value,
                ..self
            },
        }
    }

    /// The answer.
    pub fn changed(&self) -> Changed {
        let existed = self.existed;
        let value = self.value.clone().filter(|_| self.returns_value);
        match (self.puts_nothing && self.retimes, value) {
            (true, value) => Changed::Unmet(Box::new(Unmet {
                has_value: existed,
                value,
            })),
            (false, Some(value)) => Changed::Retimed(value),
            (false, None) => Changed::Made { existed },
        }
    }

    /// When the value expires that it puts or, if it puts nothing, that it has found.
    pub fn until(&self) -> Option<Micros> {
        self.until.checked_sub(1).map(Micros)
    }

    /// What a receipt says of this version, which it puts or has found.
    pub fn label(&self, id: VersionId) -> Label {
        Label {
            id,
            base: version_of(self.base_at, self.base_site),
            until: self.until(),
        }
    }

    /// The version that it has found.
    pub fn found(&self) -> Option<Label> {
        version_of(self.found_at, self.found_site).map(|id| self.label(id))
    }
}

/// How far all sites are.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Mark {
    /// Every site has everything that this site has stamped up to this time.
    #[prost(fixed64, tag = "1")]
    pub held: u64,
    /// Every site has everything that any site has stamped up to this time. When the marks of all sites say so, such deletes are forgotten.
    #[prost(fixed64, tag = "2")]
    pub settled: u64,
}

impl Entry {
    /// An entry that a leader stamps at `wall` or later.
    pub fn new(site: SiteId, link: Link, work: Work, by: OperationName, wall: Micros) -> Entry {
        Entry {
            site: site.0.into(),
            epoch: link.place.epoch.0,
            at: link.place.at.0,
            before: link.before.0,
            work: Some(work),
            session: by.session,
            tag: by.tag,
            ahead: link.place.at.wall().since(wall).0,
        }
    }

    /// The earliest time at which its leader can have stamped it, by the leader's clock. Whatever its site has acknowledged by then is in the log before it: a leader that was deposed by then would not have had its entry committed.
    pub fn wall(&self) -> Micros {
        Hlc(self.at).wall().since(Micros(self.ahead))
    }

    /// The entry as other sites are told of it.
    pub fn for_others(mut self) -> Entry {
        (self.session, self.tag) = (0, 0);
        match &mut self.work {
            Some(Work::Write(write)) if write.puts_nothing => {
                *write = Write::nothing(Bytes::new(), None, Changed::Made { existed: false });
            }
            Some(Work::Write(write)) => {
                (write.existed, write.retimes, write.returns_value) = (false, false, false);
            }
            _ => {}
        }
        self
    }

    /// The site that has stamped it.
    pub fn site(&self) -> SiteId {
        SiteId(self.site as u16)
    }

    pub fn link(&self) -> Link {
        Link {
            place: Place {
                epoch: Hlc(self.epoch),
                at: Hlc(self.at),
            },
            before: Hlc(self.before),
        }
    }

    /// The operation that it carries out, if it is a write of a session here.
    pub fn by(&self) -> Option<OperationName> {
        let (session, tag) = (self.session, self.tag);
        (tag > 0).then_some(OperationName { session, tag })
    }

    /// Its version.
    pub fn id(&self) -> VersionId {
        VersionId {
            at: Hlc(self.at),
            replica: ReplicaId::from(self.site()),
        }
    }

    /// Whether it is the first entry that its site has ever stamped.
    pub fn is_first_of_all(&self) -> bool {
        match &self.work {
            Some(Work::Begin(begin)) => begin.sites().place(self.site()) == Place::default(),
            _ => false,
        }
    }

    pub fn write(&self) -> Option<&Write> {
        match &self.work {
            Some(Work::Write(write)) => Some(write),
            _ => None,
        }
    }

    /// The key that it puts.
    pub fn key(&self) -> Option<Key> {
        let write = self.write().filter(|write| !write.puts_nothing);
        write.map(|write| Key::from(write.key.clone()))
    }

    /// The version that it puts.
    pub fn into_version(self) -> Option<(Key, Version<()>)> {
        let id = self.id();
        match self.work {
            Some(Work::Write(write)) if write.puts_nothing => None,
            Some(Work::Write(write)) => {
                let Label { base, until, .. } = write.label(id);
                let content = write
                    .value
                    .map_or(Content::DELETE, |value| Content::with_base(value, until, base));
                let version = Version {
                    id,
                    content,
                    meta: (),
                };
                Some((Key::from(write.key), version))
            }
            _ => None,
        }
    }

    pub fn encode(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// # Errors
    /// If it is no entry of this version of Turnbuckle. The error is what was found.
    pub fn decode(bytes: Bytes) -> Result<Entry, String> {
        let entry = <Entry as Message>::decode(bytes).map_err(|error| error.to_string())?;
        entry.check()?;
        Ok(entry)
    }

    /// # Errors
    /// If no leader makes such an entry. The error is what was found.
    pub fn check(&self) -> Result<(), String> {
        if self.site >= u32::from(ReplicaId::MAX_SITES) {
            return Err(format!("site {}", self.site));
        }
        let max = u32::from(ReplicaId::MAX_SITES);
        let names_no_site = |write: &Write| write.found_site >= max || write.base_site >= max;
        if self.write().is_some_and(names_no_site) {
            return Err("a write that names a version of no site".to_string());
        }
        let is_plain = |write: &Write| write.until == 0 && write.base_at == 0;
        let is_sound = |write: &Write| is_plain(write) || write.value.is_some() || write.puts_nothing;
        if !self.write().is_none_or(is_sound) {
            return Err("a delete with an expiry".to_string());
        }
        if let Some(write) = self.write().filter(|write| !write.puts_nothing)
            && let Some(base) = version_of(write.base_at, write.base_site)
        {
            base.check_base_of(self.id()).map_err(|error| error.found)?;
        }
        let is_first = matches!(self.work, Some(Work::Begin(_)));
        if let Some(Work::Begin(begin)) = &self.work {
            Sites::decode_from(&mut begin.sites.clone()).map_err(|bad| bad.to_string())?;
        }
        let is_in_order = match is_first {
            true => self.before == 0 && self.at == self.epoch,
            false => self.before >= self.epoch && self.at > self.before,
        };
        match (&self.work, is_in_order && self.epoch > 0) {
            (None, _) => Err("an entry that does nothing".to_string()),
            (_, true) => Ok(()),
            (_, false) => Err(format!(
                "an entry of {} behind {} in epoch {}",
                self.at, self.before, self.epoch
            )),
        }
    }
}
