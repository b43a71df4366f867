use crate::frame::{SurveyFrame, SurveyedFrame};
use turnbuckle_core::Key;
use turnbuckle_store::Place;

/// A question about a partition's keys that is no protocol's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survey {
    /// How many keys have a value.
    Count,
    /// Some keys that have a value.
    Scan {
        /// 0, or where the last call left off.
        cursor: u64,
        /// About how many keys to look at.
        count: u32,
    },
}

/// Where a scan of the slots from `slot` on begins.
pub fn first_cursor_of(slot: u16) -> u64 {
    Place::first_of(slot).0
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surveyed {
    /// So many keys have a value.
    Count(u64),
    /// These keys have a value.
    Keys {
        /// Where to go on; 0 when the partition is done.
        cursor: u64,
        /// The keys.
        keys: Vec<Key>,
    },
}

/// What became of a survey, or why not.
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
