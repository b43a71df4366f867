use crate::frame::{SurveyFrame, SurveyedFrame};
use turnbuckle_core::Key;
use turnbuckle_store::Place;

/// A question about a partition's keys that does not concern the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survey {
    /// The number of keys that have a value.
    Count,
    /// Some keys that have a value.
    Scan {
        /// 0 for the first call. Then the cursor that the last call returned.
        cursor: u64,
        /// About the number of keys to look at.
        count: u32,
    },
}

/// The cursor at which a scan begins with the keys of `slot`.
pub fn first_cursor_of(slot: u16) -> u64 {
    Place::first_of(slot).0
}

/// The answer to a [`Survey`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surveyed {
    /// The number of keys that have a value.
    Count(u64),
    /// Some keys that have a value.
    Keys {
        /// Where the next call goes on. 0 when the partition is done.
        cursor: u64,
        /// The keys.
        keys: Vec<Key>,
    },
}

/// The answer to a survey, or the reason, as text, why there is none.
pub type SurveyOutcome = Result<Surveyed, String>;

impl From<Survey> for SurveyFrame {
    fn from(survey: Survey) -> SurveyFrame {
        match survey {
            Survey::Count => SurveyFrame { cursor: 0, count: 0 },
            Survey::Scan { cursor, count } => SurveyFrame {
                cursor,
                count: count.max(1),
            },
        }
    }
}

impl From<SurveyFrame> for Survey {
    fn from(frame: SurveyFrame) -> Survey {
        match frame.count {
            0 => Survey::Count,
            count => Survey::Scan {
                cursor: frame.cursor,
                count,
            },
        }
    }
}

impl From<Surveyed> for SurveyedFrame {
    fn from(surveyed: Surveyed) -> SurveyedFrame {
        match surveyed {
            Surveyed::Count(number) => SurveyedFrame {
                number,
                keys: Vec::new(),
                counted: true,
            },
            Surveyed::Keys { cursor, keys } => SurveyedFrame {
                number: cursor,
                keys: keys.into_iter().map(|key| key.0).collect(),
                counted: false,
            },
        }
    }
}

impl From<SurveyedFrame> for Surveyed {
    fn from(frame: SurveyedFrame) -> Surveyed {
        if frame.counted {
            return Surveyed::Count(frame.number);
        }
        Surveyed::Keys {
            cursor: frame.number,
            keys: frame.keys.into_iter().map(Key).collect(),
        }
    }
}
