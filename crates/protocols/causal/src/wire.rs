//! The encoding of the family's messages: a byte for the kind, then the fields in their order.
//!
//! Other protocols derive their messages ([`turnbuckle_core::Record`]). These are written by hand, for three reasons:
//!
//! - They are made of vectors, timestamps and names of versions. A derived message would need a mirror of each type and of each variant.
//! - What a version depends on and what a session knows are written by the same functions. They are stored in rows and in tokens.
//! - A frame that ends too early is refused. A derived message would read a field that is missing as zero.
use crate::View;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::Arc;
use turnbuckle_core::{
    BadFrame, Change, Changed, Compute, Computed, Condition, Expiry, Forgotten, Hlc, Key, KeyValue, Lifetime,
    Micros, NotComputed, PutOptions, ReplicaId, ReplicaSet, Retimes, Step, Stepped, Transaction, Unmet,
    Vector, VersionId, Wire,
};
use turnbuckle_streams::Said;

/// Fields written one after the other.
pub(crate) struct Writer<'a>(pub &'a mut BytesMut);

impl Writer<'_> {
    pub fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.put_u8(byte);
        self
    }

    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.byte(u8::from(flag))
    }

    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.put_u64(number);
        self
    }

    pub fn count(&mut self, count: usize) -> &mut Self {
        self.0
            .put_u32(u32::try_from(count).expect("what is counted was counted in a frame"));
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.put_slice(bytes);
        self
    }

    pub fn value(&mut self, value: Option<&Bytes>) -> &mut Self {
        self.flag(value.is_some());
        match value {
            Some(value) => self.bytes(value),
            None => self,
        }
    }

    pub fn vector(&mut self, vector: &Vector) -> &mut Self {
        vector.put(self.0);
        self
    }

    pub fn view(&mut self, view: View) -> &mut Self {
        match view {
            View::Visible => self.byte(0),
            View::Newest => self.byte(1),
            View::Fresh(bound) => self.byte(2).number(bound.0),
        }
    }

    pub fn expiry(&mut self, expiry: Option<Expiry>) -> &mut Self {
        match expiry {
            None => self.byte(0),
            Some(Expiry::At(time)) => self.byte(1).number(time.0),
            Some(Expiry::After(span)) => self.byte(2).number(span.0),
            Some(Expiry::Kept) => self.byte(3),
        }
    }

    pub fn change(&mut self, change: &Change) -> &mut Self {
        self.value(change.value()).expiry(change.expiry());
        self.byte(change.retimes().map_or(0, |retimes| retimes as u8 + 1));
        self.flag(change.returns_value());
        match change.condition() {
            None => self.byte(0),
            Some(Condition::Absent) => self.byte(1),
            Some(Condition::Present) => self.byte(2),
            Some(Condition::Version(version)) => self.byte(3).id(Some(version)),
        };
        match change.options().and_then(|options| options.computes.as_ref()) {
            None => self.byte(0),
            Some(Compute::Add(more)) => self.byte(1).number(*more as u64),
            Some(Compute::AddDecimal(more)) => self.byte(2).bytes(more.to_string().as_bytes()),
            Some(Compute::Append(more)) => self.byte(3).bytes(more),
            Some(Compute::Overwrite(at, with)) => self.byte(4).number((*at).into()).bytes(with),
            Some(Compute::Edit(edit)) => self.byte(5).framed(&**edit),
        }
    }

    pub fn steps(&mut self, steps: &[Step]) -> &mut Self {
        self.count(steps.len());
        for step in steps {
            match step {
                Step::Get(key) => self.byte(0).bytes(key.as_ref()),
                Step::Lifetime(key) => self.byte(1).bytes(key.as_ref()),
                Step::Put(key, value, options) => {
                    let change = Change::new(value.clone(), options.clone());
                    self.byte(2).bytes(key.as_ref()).change(&change)
                }
            };
        }
        self
    }

    pub fn stepped(&mut self, stepped: &Stepped) -> &mut Self {
        match stepped {
            Stepped::Value(value) => self.byte(0).value(value.as_ref()),
            Stepped::Lifetime(Lifetime::NoValue) => self.byte(1),
            Stepped::Lifetime(Lifetime::Forever) => self.byte(2),
            Stepped::Lifetime(Lifetime::Until(until)) => self.byte(3).number(until.0),
            Stepped::Changed(changed) => self.byte(4).changed(changed),
            Stepped::Elements(elements) => self.byte(5).framed(&**elements),
        }
    }

    pub fn changed(&mut self, changed: &Changed) -> &mut Self {
        match changed {
            Changed::Made { existed } => self.byte(u8::from(*existed)),
            Changed::Retimed(value) => self.byte(2).bytes(value),
            Changed::Unmet(unmet) => {
                self.byte(3).flag(unmet.has_value);
                self.value(unmet.value.as_ref())
            }
            Changed::Computed(Computed::Number(sum)) => self.byte(4).bytes(sum),
            Changed::NotComputed(why) => self.byte(5).byte(*why as u8),
            Changed::Replaced(value) => self.byte(6).value(value.as_ref()),
            Changed::Computed(Computed::Length(length)) => self.byte(7).number(*length),
            Changed::Computed(Computed::Elements(count)) => self.byte(8).number(*count),
        }
    }

    /// What a key has.
    pub fn whole(&mut self, value: Option<&KeyValue>) -> &mut Self {
        match value {
            None => self.byte(0),
            Some(KeyValue::Bytes(value)) => self.byte(1).bytes(value),
            Some(KeyValue::Elements(elements)) => self.byte(2).framed(&**elements),
        }
    }

    /// What has an encoding of its own, behind its length.
    fn framed<T: Wire>(&mut self, framed: &T) -> &mut Self {
        let mut frame = BytesMut::new();
        framed.encode(&mut frame);
        self.bytes(&frame)
    }

    pub fn said(&mut self, said: Said) -> &mut Self {
        self.number(said.birth)
            .number(said.shown.0)
            .number(said.forgotten.0)
            .number(said.closed.0)
    }

    pub fn id(&mut self, id: Option<VersionId>) -> &mut Self {
        self.flag(id.is_some());
        if let Some(id) = id {
            self.number(id.at.0);
            self.0.put_u16(id.replica.0);
        }
        self
    }
}

/// Fields read one after the other. Every read may find that the frame ends too early; none allocates more than the frame has.
pub(crate) struct Reader {
    rest: Bytes,
    expected: &'static str,
}

impl Reader {
    pub fn new(frame: Bytes, expected: &'static str) -> Reader {
        Reader {
            rest: frame,
            expected,
        }
    }

    pub fn bad(&self, found: impl Into<String>) -> BadFrame {
        BadFrame::new(self.expected, found)
    }

    fn cut_short<E>(&self) -> impl FnOnce(E) -> BadFrame + use<E> {
        let expected = self.expected;
        move |_| BadFrame::new(expected, "a frame that ends too early")
    }

    pub fn byte(&mut self) -> Result<u8, BadFrame> {
        let bad = self.cut_short();
        self.rest.try_get_u8().map_err(bad)
    }

    pub fn flag(&mut self) -> Result<bool, BadFrame> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.bad(format!("{other} as a flag, which is 0 or 1"))),
        }
    }

    pub fn view(&mut self) -> Result<View, BadFrame> {
        match self.byte()? {
            0 => Ok(View::Visible),
            1 => Ok(View::Newest),
            2 => self.micros().map(View::Fresh),
            other => Err(self.bad(format!("{other} as what a read shows, which is 0, 1 or 2"))),
        }
    }

    pub fn expiry(&mut self) -> Result<Option<Expiry>, BadFrame> {
        Ok(Some(match self.byte()? {
            0 => return Ok(None),
            1 => Expiry::At(self.micros()?),
            2 => Expiry::After(self.micros()?),
            3 => Expiry::Kept,
            other => return Err(self.bad(format!("{other} as an expiry, which is 0 to 3"))),
        }))
    }

    pub fn change(&mut self) -> Result<Change, BadFrame> {
        let (value, expiry) = (self.value()?, self.expiry()?);
        let retimes = match self.byte()? {
            0 => None,
            kind => {
                let known = Retimes::try_from(i32::from(kind) - 1);
                Some(known.map_err(|_| self.bad(format!("{kind} as a kind of change of an expiry")))?)
            }
        };
        if value.is_some() && retimes.is_some() {
            return Err(self.bad("a value, and a change of the expiry of another one"));
        }
        let returns_value = self.flag()?;
        let condition = match self.byte()? {
            0 => None,
            1 => Some(Condition::Absent),
            2 => Some(Condition::Present),
            3 => {
                let version = self.id()?;
                Some(Condition::Version(
                    version.ok_or_else(|| self.bad("a condition on no version"))?,
                ))
            }
            other => return Err(self.bad(format!("{other} as a condition, which is 0 to 3"))),
        };
        let computes = match self.byte()? {
            0 => None,
            1 => Some(Compute::Add(self.number()? as i64)),
            2 => {
                let more = turnbuckle_core::decimal(&self.bytes()?);
                Some(Compute::AddDecimal(
                    more.ok_or_else(|| self.bad("what is no decimal number"))?,
                ))
            }
            3 => Some(Compute::Append(self.bytes()?)),
            4 => {
                let at = u32::try_from(self.number()?);
                let at = at.map_err(|_| self.bad("a place that is too far behind"))?;
                Some(Compute::Overwrite(at, self.bytes()?))
            }
            5 => Some(Compute::Edit(Box::new(self.framed()?))),
            other => return Err(self.bad(format!("{other} as what is computed, which is 0 to 5"))),
        };
        if computes.is_some() && (value.is_some() || expiry.is_some() || retimes.is_some()) {
            return Err(self.bad("a computed value, and a value or an expiry"));
        }
        let options = PutOptions {
            condition,
            expiry,
            returns_previous: returns_value,
            computes,
            retimes,
            ..PutOptions::default()
        };
        let options = (options != PutOptions::default()).then(|| Box::new(options));
        Ok(Change::new(value, options))
    }

    pub fn steps(&mut self) -> Result<Vec<Step>, BadFrame> {
        let count = self.count()?;
        if count > Transaction::MAX {
            return Err(self.bad(format!("a transaction of {count} steps")));
        }
        let step = |from: &mut Reader| {
            Ok(match from.byte()? {
                0 => Step::Get(from.key()?),
                1 => Step::Lifetime(from.key()?),
                2 => {
                    let (key, change) = (from.key()?, from.change()?);
                    let (value, options) = change.into_put();
                    Step::Put(key, value, options)
                }
                other => return Err(from.bad(format!("{other} as a kind of step, which is 0 to 2"))),
            })
        };
        (0..count).map(|_| step(self)).collect()
    }

    pub fn stepped(&mut self) -> Result<Stepped, BadFrame> {
        Ok(match self.byte()? {
            0 => Stepped::Value(self.value()?),
            1 => Stepped::Lifetime(Lifetime::NoValue),
            2 => Stepped::Lifetime(Lifetime::Forever),
            3 => Stepped::Lifetime(Lifetime::Until(self.micros()?)),
            4 => Stepped::Changed(self.changed()?),
            5 => Stepped::Elements(Arc::new(self.framed()?)),
            other => return Err(self.bad(format!("{other} as what became of a step, which is 0 to 5"))),
        })
    }

    pub fn changed(&mut self) -> Result<Changed, BadFrame> {
        Ok(match self.byte()? {
            existed @ (0 | 1) => Changed::Made {
                existed: existed == 1,
            },
            2 => Changed::Retimed(self.bytes()?),
            3 => Changed::Unmet(Box::new(Unmet {
                has_value: self.flag()?,
                value: self.value()?,
            })),
            4 => Changed::Computed(Computed::Number(self.bytes()?)),
            5 => {
                let why = NotComputed::try_from(i32::from(self.byte()?));
                Changed::NotComputed(why.map_err(|why| self.bad(why.to_string()))?)
            }
            6 => Changed::Replaced(self.value()?),
            7 => Changed::Computed(Computed::Length(self.number()?)),
            8 => Changed::Computed(Computed::Elements(self.number()?)),
            other => return Err(self.bad(format!("{other} as what became of a change, which is 0 to 8"))),
        })
    }

    /// What a key has.
    pub fn whole(&mut self) -> Result<Option<KeyValue>, BadFrame> {
        Ok(match self.byte()? {
            0 => None,
            1 => Some(KeyValue::Bytes(self.bytes()?)),
            2 => Some(KeyValue::Elements(Arc::new(self.framed()?))),
            other => return Err(self.bad(format!("{other} as what a key has, which is 0 to 2"))),
        })
    }

    fn framed<T: Wire>(&mut self) -> Result<T, BadFrame> {
        T::decode(self.bytes()?)
    }

    pub fn number(&mut self) -> Result<u64, BadFrame> {
        let bad = self.cut_short();
        self.rest.try_get_u64().map_err(bad)
    }

    pub fn hlc(&mut self) -> Result<Hlc, BadFrame> {
        match Hlc(self.number()?) {
            late if late > Hlc::LATEST => Err(self.bad("a timestamp after 2112")),
            at => Ok(at),
        }
    }

    pub fn micros(&mut self) -> Result<Micros, BadFrame> {
        self.number().map(Micros)
    }

    /// The number of items that follow, each of at least one byte.
    pub fn count(&mut self) -> Result<usize, BadFrame> {
        let bad = self.cut_short();
        match self.rest.try_get_u32().map_err(bad)? as usize {
            count if count > self.rest.len() => Err(self.bad("a frame that ends too early")),
            count => Ok(count),
        }
    }

    pub fn bytes(&mut self) -> Result<Bytes, BadFrame> {
        let len = self.count()?;
        Ok(self.rest.split_to(len))
    }

    pub fn key(&mut self) -> Result<Key, BadFrame> {
        self.bytes().map(Key)
    }

    pub fn value(&mut self) -> Result<Option<Bytes>, BadFrame> {
        self.flag()?.then(|| self.bytes()).transpose()
    }

    pub fn vector(&mut self) -> Result<Vector, BadFrame> {
        Vector::take(&mut self.rest)
    }

    pub fn id(&mut self) -> Result<Option<VersionId>, BadFrame> {
        if !self.flag()? {
            return Ok(None);
        }
        let at = self.hlc()?;
        let bad = self.cut_short();
        let replica = self.rest.try_get_u16().map_err(bad)?;
        if replica >= ReplicaSet::MAX {
            let highest = ReplicaSet::MAX - 1;
            return Err(self.bad(format!("replica {replica}, where the highest is {highest}")));
        }
        Ok(Some(VersionId {
            at,
            replica: ReplicaId(replica),
        }))
    }

    pub fn said(&mut self) -> Result<Said, BadFrame> {
        Ok(Said {
            birth: Forgotten::check_birth(self.number()?)?,
            shown: self.hlc()?,
            forgotten: self.hlc()?,
            closed: self.hlc()?,
        })
    }

    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// `value`, if nothing follows.
    pub fn end<T>(self, value: T) -> Result<T, BadFrame> {
        match self.rest.len() {
            0 => Ok(value),
            left => Err(self.bad(format!("{left} bytes too many"))),
        }
    }
}
