//! What a session asks of a replica, and what it is told.
use crate::sites::{self, Place};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Hlc, Micros, PlainRequest, PlainResponse, ReplicaId, ReplicaSet, SiteId, Wire,
};
use turnbuckle_raft::OperationName;

/// An operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub work: PlainRequest,
    /// Its name.
    pub by: OperationName,
    /// Of a write: it has no entry up to this index in the log of the site's group.
    pub index: u64,
    /// Whether the write may have been carried out already.
    pub is_repeated: bool,
    /// What the answering replica must have of each site. Of a write: only where writes wait.
    pub needs: Vec<(SiteId, Place)>,
    /// The newest time that the session has seen, as far as the level promises to go by it. A write's timestamp is above it, and a value that expires is looked at no
    /// earlier.
    pub above: Hlc,
    /// How long the session has tried already: a replica does not let it wait for longer than the rest of its patience.
    pub tried: Micros,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// What became of the operation.
    pub outcome: Outcome,
    /// How far the replica is in the log of its group; of a write, its place there.
    pub index: u64,
    /// The epoch in which the version was stamped that was read or written; zero if it is in none that other replicas could be asked for.
    pub epoch: Hlc,
    /// If there is no version: what the answer shows has everything that any site stamped up to this time, and deletes up to it may be forgotten. If there is one, and no epoch: its timestamp, if other replicas may lack it.
    pub floor: Hlc,
    /// When the version expired that was read, or that a delete has found, if it has. Zero: it has not.
    pub expired: Hlc,
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, or refused.
    Answered(PlainResponse),
    /// It was not carried out: this replica does not lead its site's group. The leader may be known.
    NotLeader(Option<ReplicaId>),
    /// The write was not carried out: it may be among entries that this leader does not keep any more. If no other request for it is under way, it may be asked for again, with the index of this answer.
    Late,
    /// The read was not carried out: this replica lacks what the session needs. The leader of its group may be known.
    Behind(Option<ReplicaId>),
    /// The operation was not carried out: this leader has let it wait, and still lacks writes of that site which the session has seen. It may be asked again.
    StillLacks(SiteId),
    /// The write was not carried out: the site begins, or it has lost its directories. First this leader has to learn from that site which of its own writes there are.
    NotBegun(SiteId),
}

/// Half of what a u64 can count: so an index can be counted on from.
const MAX_INDEX: u64 = u64::MAX / 2;

/// The most needs in a request, and the most places of a row in a token: of each site, those of the epochs that a session keeps.
const MAX_NEEDS: usize = ReplicaId::MAX_SITES as usize * MAX_EPOCHS;

/// Of how many epochs of a site a session keeps what it has seen: those that replicas remember, the last one, and what it has seen in no known epoch.
pub(crate) const MAX_EPOCHS: usize = sites::ENDED + 2;

fn bad(found: impl Into<String>) -> BadFrame {
    BadFrame::new("a request or an answer of a regional keyspace", found)
}

fn cut_short(_: bytes::TryGetError) -> BadFrame {
    bad("a part of one")
}

/// Appends what a session has seen of each site.
pub(crate) fn put_places(out: &mut BytesMut, places: &[(SiteId, Place)]) {
    out.put_u16(places.len() as u16);
    for (site, place) in places {
        out.put_u16(site.0);
        out.put_u64(place.epoch.0);
        out.put_u64(place.at.0);
    }
}

pub(crate) fn take_places(frame: &mut Bytes) -> Result<Vec<(SiteId, Place)>, BadFrame> {
    let count = usize::from(frame.try_get_u16().map_err(cut_short)?);
    if count > MAX_NEEDS {
        return Err(bad(format!("{count} places; at most {MAX_NEEDS} are possible")));
    }
    let mut places = Vec::new();
    for _ in 0..count {
        let site = frame.try_get_u16().map_err(cut_short)?;
        let epoch = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let at = Hlc(frame.try_get_u64().map_err(cut_short)?);
        if site >= ReplicaId::MAX_SITES || epoch > at {
            return Err(bad(format!(
                "the place {} of site {site} in epoch {}",
                at.0, epoch.0
            )));
        }
        places.push((SiteId(site), Place { epoch, at }));
    }
    Ok(places)
}

fn take_site(frame: &mut Bytes) -> Result<SiteId, BadFrame> {
    match frame.try_get_u16().map_err(cut_short)? {
        site if site < ReplicaId::MAX_SITES => Ok(SiteId(site)),
        other => Err(bad(format!("site {other}"))),
    }
}

fn take_leader(frame: &mut Bytes) -> Result<Option<ReplicaId>, BadFrame> {
    match frame.try_get_u16().map_err(cut_short)? {
        u16::MAX => Ok(None),
        replica if replica < ReplicaSet::MAX => Ok(Some(ReplicaId(replica))),
        other => Err(BadFrame::replica(other.into())),
    }
}

impl Wire for Request {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.by.session);
        out.put_u64(self.by.tag);
        out.put_u64(self.index);
        out.put_u64(self.above.0);
        out.put_u64(self.tried.0);
        out.put_u8(u8::from(self.is_repeated));
        put_places(out, &self.needs);
        self.work.encode(out);
    }

    fn decode(mut frame: Bytes) -> Result<Request, BadFrame> {
        let by = OperationName {
            session: frame.try_get_u64().map_err(cut_short)?,
            tag: frame.try_get_u64().map_err(cut_short)?,
        };
        let index = frame.try_get_u64().map_err(cut_short)?;
        if index > MAX_INDEX {
            return Err(bad("an index that no log has"));
        }
        let above = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let tried = Micros(frame.try_get_u64().map_err(cut_short)?);
        let is_repeated = match frame.try_get_u8().map_err(cut_short)? {
            0 => false,
            1 => true,
            other => return Err(bad(format!("{other} where 0 or 1 is expected"))),
        };
        let needs = take_places(&mut frame)?;
        let work = PlainRequest::decode(frame)?;
        if work.is_write() && by.tag == 0 {
            return Err(bad("a write without a number"));
        }
        Ok(Request {
            work,
            by,
            index,
            is_repeated,
            needs,
            above,
            tried,
        })
    }

    fn newest(&self) -> Hlc {
        let needs = self.needs.iter().map(|(_, place)| place.at).max();
        self.work.newest().max(self.above).max(needs.unwrap_or_default())
    }

    fn replicas(&self) -> ReplicaSet {
        let sites = self.needs.iter().map(|&(site, _)| site.into());
        self.work.replicas().union(sites.collect())
    }

    fn heap_bytes(&self) -> usize {
        self.work.heap_bytes() + self.needs.capacity() * size_of::<(SiteId, Place)>()
    }
}

impl Wire for Response {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.index);
        out.put_u64(self.epoch.0);
        out.put_u64(self.floor.0);
        out.put_u64(self.expired.0);
        let (kind, leader) = match &self.outcome {
            Outcome::Answered(response) => {
                out.put_u8(0);
                return response.encode(out);
            }
            Outcome::Late => return out.put_u8(3),
            Outcome::StillLacks(site) => {
                out.put_u8(4);
                return out.put_u16(site.0);
            }
            Outcome::NotBegun(site) => {
                out.put_u8(5);
                return out.put_u16(site.0);
            }
            Outcome::NotLeader(leader) => (1, leader),
            Outcome::Behind(leader) => (2, leader),
        };
        out.put_u8(kind);
        out.put_u16(leader.map_or(u16::MAX, |leader| leader.0));
    }

    fn decode(mut frame: Bytes) -> Result<Response, BadFrame> {
        let index = frame.try_get_u64().map_err(cut_short)?;
        let epoch = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let floor = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let expired = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let with = |outcome| Response {
            outcome,
            index,
            epoch,
            floor,
            expired,
        };
        let kind = frame.try_get_u8().map_err(cut_short)?;
        if kind == 0 {
            return Ok(with(Outcome::Answered(PlainResponse::decode(frame)?)));
        }
        let outcome = match kind {
            1 => Outcome::NotLeader(take_leader(&mut frame)?),
            2 => Outcome::Behind(take_leader(&mut frame)?),
            3 => Outcome::Late,
            4 => Outcome::StillLacks(take_site(&mut frame)?),
            5 => Outcome::NotBegun(take_site(&mut frame)?),
            other => return Err(bad(format!("an answer of kind {other}"))),
        };
        match frame.is_empty() {
            true => Ok(with(outcome)),
            false => Err(bad("more")),
        }
    }

    fn newest(&self) -> Hlc {
        let newest = self.epoch.max(self.floor).max(self.expired);
        match &self.outcome {
            Outcome::Answered(response) => response.newest().max(newest),
            _ => newest,
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match &self.outcome {
            Outcome::Answered(response) => response.replicas(),
            Outcome::Late => ReplicaSet::default(),
            Outcome::StillLacks(site) | Outcome::NotBegun(site) => ReplicaSet::one((*site).into()),
            Outcome::NotLeader(leader) | Outcome::Behind(leader) => {
                leader.map_or(ReplicaSet::default(), ReplicaSet::one)
            }
        }
    }
}
