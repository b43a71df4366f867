//! A connection to a server: commands out, replies in.

use bytes::{Buf, BytesMut};
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use turnbuckle_resp::{ReplyDecoder, Value, encode_command};
use turnbuckle_server::{Link, TlsAuthority};

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
    stream: Link,
    replies: ReplyDecoder,
    input: BytesMut,
    output: BytesMut,
}

impl Connection {
    /// Connects to `host:port`, with TLS if there is an authority.
    pub(crate) async fn open(address: &str, authority: Option<&TlsAuthority>) -> Result<Connection, Trouble> {
        let cannot = |why: String| Trouble::Broken(format!("cannot connect to {address}: {why}"));
        let stream = timeout(SET_UP, TcpStream::connect(address))
            .await
            .map_err(|_| cannot(format!("no answer within {} s", SET_UP.as_secs())))?
            .map_err(|error| cannot(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| cannot(error.to_string()))?;
        let stream = match authority {
            None => Link::Plain(stream),
            Some(authority) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let protected = authority.connect(stream, host.trim_matches(['[', ']']));
                protected.await.map_err(|error| cannot(error.to_string()))?
            }
        };
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
        let arrived = poll_fn(|cx| {
            if let Err(error) = self.poll_write(cx) {
                return Poll::Ready(Err(error));
            }
            let mut read = pin!(self.stream.read_buf(&mut self.input));
            read.as_mut().poll(cx)
        });
        match arrived.await.map_err(lost)? {
            0 => Err(Trouble::Broken("connection closed by the server".into())),
            _ => Ok(()),
        }
    }

    /// Sends as much of what is queued as the connection takes.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut stream = Pin::new(&mut self.stream);
        while !self.output.is_empty() {
            match stream.as_mut().poll_write(cx, &self.output) {
                Poll::Ready(written) => self.output.advance(written?),
                Poll::Pending => return Ok(()),
            }
        }
        match stream.poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }
}
