//! Messages of clients to channels, on their way to the nodes whose clients may listen.
use crate::frame::PublicationFrame;
use bytes::Bytes;
use turnbuckle_core::{BadFrame, SessionId, TokenHeader};

/// A message to a channel, and what its publisher had seen. It may be lost on its way, and is sent once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The session that has sent it. Its messages are heard in the order in which they were sent, as far as they are heard.
    pub publisher: SessionId,
    /// What that session had seen and written: what [`Session::token`](turnbuckle_core::Session::token) wrote.
    pub seen: Bytes,
    /// The message.
    pub message: turnbuckle_core::Message,
}

impl Publication {
    /// The longest name of a channel, in bytes.
    pub const MAX_CHANNEL_BYTES: usize = 64 << 10;

    pub(crate) fn frame(&self) -> PublicationFrame {
        PublicationFrame {
            publisher: self.publisher.0,
            seen: self.seen.clone(),
            channel: self.message.channel.clone(),
            text: self.message.text.clone(),
        }
    }

    /// The bytes that it takes while it waits.
    pub fn bytes(&self) -> usize {
        size_of::<Publication>() + self.seen.len() + self.message.channel.len() + self.message.text.len()
    }
}

impl TryFrom<PublicationFrame> for Publication {
    type Error = BadFrame;

    fn try_from(frame: PublicationFrame) -> Result<Publication, BadFrame> {
        let (seen, channel) = (frame.seen.len(), frame.channel.len());
        if seen > TokenHeader::MAX_BYTES || channel > Self::MAX_CHANNEL_BYTES {
            let expected = "a message whose channel and session have at most 64 KiB each";
            return Err(BadFrame::new(expected, format!("{channel} and {seen} bytes")));
        }
        Ok(Publication {
            publisher: SessionId(frame.publisher),
            seen: frame.seen,
            message: turnbuckle_core::Message {
                channel: frame.channel,
                text: frame.text,
            },
        })
    }
}
