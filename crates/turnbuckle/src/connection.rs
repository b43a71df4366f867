//! A connection to a server: commands out, replies in.

use bytes::{Buf, BytesMut};
use std::{io, time::Duration};
use thiserror::Error;
use tokio::{io::Interest, net::TcpStream, time::timeout};
use turnbuckle_resp::{ReplyDecoder, Value, encode_command};

/// Why a connection cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Trouble {
    /// The server refuses what it was asked to set up. Asking again will not help.
    #[error("{0}")]
    Refused(String),
    /// There is no server, or it went away, or it does not speak the protocol.
    #[error("{0}")]
    Broken(String),
    /// An operation was not answered in time. It is not known what the connection can still be used for.
    #[error("no answer within the timeout")]
    Late,
}

/// How long connecting may take, and how long one command of the set-up may take.
const SET_UP: Duration = Duration::from_secs(5);

/// The longest reply that is taken, in bytes: well above the largest value.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// A connection, with what is on its way in both directions.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    replies: ReplyDecoder,
    input: BytesMut,
    output: BytesMut,
}

impl Connection {
    /// Connects to `host:port`.
    pub(crate) async fn open(address: &str) -> Result<Connection, Trouble> {
        let cannot = |why: String| Trouble::Broken(format!("cannot connect to {address}: {why}"));
        let stream = timeout(SET_UP, TcpStream::connect(address))
            .await
            .map_err(|_| cannot(format!("no answer within {} s", SET_UP.as_secs())))?
            .map_err(|error| cannot(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| cannot(error.to_string()))?;
        Ok(Connection {
            stream,
            replies: ReplyDecoder::new(MAX_REPLY_BYTES),
            input: BytesMut::with_capacity(1 << 14),
            output: BytesMut::new(),
        })
    }

    /// Sends one command of the set-up and waits for its reply, while nothing else is under way. An error is a reply, too.
    pub(crate) async fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<Value, Trouble> {
        self.call_within(arguments, SET_UP).await
    }

    /// The same, for a command that may take `time`.
    pub(crate) async fn call_within<A: AsRef<[u8]>>(
        &mut self,
        arguments: &[A],
        time: Duration,
    ) -> Result<Value, Trouble> {
        self.send(arguments);
        let answered = async {
            loop {
                if let Some(value) = self.reply()? {
                    return Ok(value);
                }
                self.exchange().await?;
            }
        };
        timeout(time, answered)
            .await
            .unwrap_or_else(|_| Err(Trouble::Broken(format!("no answer within {} s", time.as_secs()))))
    }

    /// Queues a command. [`Connection::exchange`] sends it.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        encode_command(arguments, &mut self.output);
    }

    /// The next reply that has arrived. Pushes are not replies, and are skipped.
    pub(crate) fn reply(&mut self) -> Result<Option<Value>, Trouble> {
        loop {
            match self.replies.decode(&mut self.input) {
                Ok(Some(Value::Push(_))) => continue,
                Ok(value) => return Ok(value),
                Err(error) => {
                    return Err(Trouble::Broken(format!("not the Redis protocol: {error}")));
                }
            }
        }
    }

    /// Sends what is queued and returns when something has arrived. May be dropped at any point and called again.
    pub(crate) async fn exchange(&mut self) -> Result<(), Trouble> {
        let lost = |error: io::Error| Trouble::Broken(format!("connection lost: {error}"));
        loop {
            self.write_some().map_err(lost)?;
            let interest = if self.output.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.stream.ready(interest).await.map_err(lost)?;
            if ready.is_readable() {
                match self.stream.try_read_buf(&mut self.input) {
                    Ok(0) => return Err(Trouble::Broken("connection closed by the server".into())),
                    Ok(_) => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(lost(error)),
                }
            }
        }
    }

    /// Sends as much of what is queued as the socket takes.
    pub(crate) fn write_some(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.try_write(&self.output) {
                Ok(written) => self.output.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
