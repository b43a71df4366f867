//! A client's socket, plain or with TLS.
//!
//! The event loop reads and writes without waiting. With TLS, both go through a [`ServerConnection`], which holds bytes of its own:
//!
//! ```text
//!   socket --> ciphertext --> [ServerConnection] --> plaintext that was not taken yet --> Input
//!   socket <-- ciphertext that the socket did not take <-- [ServerConnection] <-- Output
//! ```
//!
//! So a client can be read from although its socket has nothing ([`Socket::readable`] knows that), and something is left to write although the connection has given all its output away
//! ([`Socket::is_clogged`]). Both are bounded: bytes are taken from the socket only when all plaintext was taken, and from the connection only when all ciphertext was sent.
use bytes::BufMut;
use rustls::{ServerConfig, ServerConnection};
use std::{
    cell::{Cell, RefCell},
    io::{self, BufRead, ErrorKind, IoSlice, Read, Write},
    sync::Arc,
};
use tokio::{io::Interest, net::TcpStream};

/// How many bytes are encrypted before they are written to the socket: some records.
const ENCRYPT_BYTES: usize = 32 << 10;

/// How often one call reads from the socket. A client can send records that bring no plaintext.
const MAX_READS: u32 = 64;

/// A client's socket.
pub(super) struct Socket {
    tcp: TcpStream,
    tls: Option<Tls>,
}

struct Tls {
    connection: RefCell<Box<ServerConnection>>,
    /// There is plaintext that was not taken, or the end of it was not told.
    has_plaintext: Cell<bool>,
    /// The last read from the socket brought less than it might.
    is_drained: Cell<bool>,
}

impl Socket {
    pub fn plain(tcp: TcpStream) -> Socket {
        Socket { tcp, tls: None }
    }

    /// A socket whose client must begin with a TLS handshake.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn protected(tcp: TcpStream, config: Arc<ServerConfig>) -> Result<Socket, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        connection.set_buffer_limit(Some(ENCRYPT_BYTES));
        Ok(Socket {
            tcp,
            tls: Some(Tls {
                connection: RefCell::new(Box::new(connection)),
                has_plaintext: Cell::new(false),
                is_drained: Cell::new(false),
            }),
        })
    }

    /// Whether the TLS handshake is under way.
    pub fn is_handshaking(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.connection.borrow().is_handshaking())
    }

    /// Waits until there may be something to read.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.tls {
            Some(tls) if tls.has_plaintext.get() => Ok(()),
            _ => self.tcp.readable().await,
        }
    }

    /// Waits until the socket may take something.
    pub async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    /// Reads what has arrived, at most as much as the buffer has room for. 0: the client sends no more.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if nothing has arrived. Others if the connection is broken, or what arrived is no TLS.
    pub fn read(&self, mut buffer: &mut dyn BufMut) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.tcp.try_read_buf(&mut buffer);
        };
        let mut connection = tls.connection.borrow_mut();
        let (mut taken, mut reads) = (0, 0);
        tls.is_drained.set(false);
        tls.has_plaintext.set(false);
        loop {
            let ended = match connection.reader().fill_buf() {
                Ok(plaintext) => {
                    let bytes = plaintext.len().min(buffer.remaining_mut());
                    buffer.put_slice(&plaintext[..bytes]);
                    connection.reader().consume(bytes);
                    taken += bytes;
                    // There may be more of it.
                    tls.has_plaintext.set(bytes > 0 && !buffer.has_remaining_mut());
                    if tls.has_plaintext.get() {
                        return Ok(taken);
                    }
                    if bytes > 0 {
                        continue;
                    }
                    true
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                // It has closed the connection without saying so before.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => true,
                Err(error) => return Err(error),
            };
            if ended {
                // The next read says that nothing more comes.
                tls.has_plaintext.set(taken > 0);
                return Ok(taken);
            }
            reads += 1;
            if tls.is_drained.get() || reads > MAX_READS {
                return if taken > 0 {
                    Ok(taken)
                } else {
                    Err(ErrorKind::WouldBlock.into())
                };
            }
            match connection.read_tls(&mut Incoming(&self.tcp, &tls.is_drained)) {
                Ok(_) => {
                    let processed = connection.process_new_packets();
                    // Also what says why the client is refused.
                    let sent = send(&self.tcp, &mut connection);
                    processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    sent?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells Tokio that the socket is drained, because a read brought less than it might: the kernel announces what comes later. Tokio itself notices
    /// that where it polls a socket, but not in its `try_read`. Without this, each command would cost a second read, which finds nothing.
    pub fn note_drained(&self) {
        // With TLS, a read can bring less because the rest is to be taken first.
        if self.tls.as_ref().is_none_or(|tls| tls.is_drained.get()) {
            let found_nothing = || Err::<(), _>(ErrorKind::WouldBlock.into());
            let _ = self.tcp.try_io(Interest::READABLE, found_nothing);
        }
    }

    /// Writes as much as can be written now. Returns how much that was.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if it was nothing. Others if the connection is broken.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.tcp.try_write_vectored(slices);
        };
        let mut connection = tls.connection.borrow_mut();
        if !send(&self.tcp, &mut connection)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let written = connection.writer().write_vectored(slices)?;
        if written == 0 {
            // Replies before the end of the handshake, to commands that cannot have come.
            return Err(ErrorKind::WriteZero.into());
        }
        send(&self.tcp, &mut connection)?;
        Ok(written)
    }

    /// Whether something is left that the socket has not taken.
    pub fn is_clogged(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.connection.borrow().wants_write())
    }

    /// How many bytes that were written are still held.
    pub fn held_bytes(&self) -> usize {
        match self.is_clogged() {
            true => ENCRYPT_BYTES,
            false => 0,
        }
    }

    /// Sends what the socket has not taken.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn flush(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            send(&self.tcp, &mut tls.connection.borrow_mut())?;
        }
        Ok(())
    }

    /// Tells the client that nothing more comes, as far as the socket takes that now.
    pub fn close(&self) {
        if let Some(tls) = &self.tls {
            let mut connection = tls.connection.borrow_mut();
            connection.send_close_notify();
            // A client that does not read is not told.
            let _ = send(&self.tcp, &mut connection);
        }
    }
}

/// Writes ciphertext to the socket. Returns whether all of it was written.
fn send(tcp: &TcpStream, connection: &mut ServerConnection) -> io::Result<bool> {
    while connection.wants_write() {
        match connection.write_tls(&mut Outgoing(tcp)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The socket, to read from; and whether a read has found less than it might.
struct Incoming<'a>(&'a TcpStream, &'a Cell<bool>);

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.try_read(buffer);
        self.1.set(!matches!(&read, Ok(bytes) if *bytes == buffer.len()));
        read
    }
}

/// The socket, to write to.
struct Outgoing<'a>(&'a TcpStream);

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
