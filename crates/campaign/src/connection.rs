//! A blocking client connection, which waits for its answers: for programs that simulate many clients with one thread each.
use bytes::BytesMut;
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use turnbuckle_resp::{ReplyDecoder, Value, encode_command};

/// The longest answer that is accepted, in bytes.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// A connection to a node.
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
    decoder: ReplyDecoder,
}

impl Connection {
    /// Connects to a port of this machine, and waits at most `patience` for that and for each answer.
    ///
    /// # Errors
    /// If nothing listens on the port.
    pub fn open(port: u16, patience: Duration) -> io::Result<Connection> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Connection::over(TcpStream::connect_timeout(&address, patience)?, patience)
    }

    /// Uses a socket that is connected already.
    ///
    /// # Errors
    /// If the socket cannot be used.
    pub fn over(stream: TcpStream, patience: Duration) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection {
            stream,
            input: BytesMut::new(),
            decoder: ReplyDecoder::new(MAX_REPLY_BYTES),
        })
    }

    /// Sends commands.
    ///
    /// # Errors
    /// If the connection is lost: some commands may have arrived.
    pub fn send<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> io::Result<()> {
        let mut out = BytesMut::new();
        for command in commands {
            encode_command(command, &mut out);
        }
        self.stream.write_all(&out)
    }

    /// Waits for the next answer. An error reply of the server is an answer, too.
    ///
    /// # Errors
    /// `UnexpectedEof` if the server closed the connection, `WouldBlock` if no answer came in time, `InvalidData` if what came is not an
    /// answer.
    pub fn read(&mut self) -> io::Result<Value> {
        loop {
            let decoded = self.decoder.decode(&mut self.input);
            match decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Some(Value::Push(_)) => continue,
                Some(value) => return Ok(value),
                None => {}
            }
            let mut bytes = [0; 64 << 10];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.input.extend_from_slice(&bytes[..read]),
            }
        }
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    /// Those of [`Connection::send`] and [`Connection::read`].
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<Value> {
        let command: Vec<&[u8]> = command.iter().map(AsRef::as_ref).collect();
        self.send(&[command])?;
        self.read()
    }
}
