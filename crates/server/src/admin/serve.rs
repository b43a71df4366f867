use super::{Admin, guard::Ends, route};
use crate::tls::{Link, Tls};
use axum::Router;
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinHandle, JoinSet},
    time::{sleep, timeout},
};

/// How many connections are served at once. If one more comes, the connection that has been silent for the longest is closed. Every answer is made at
/// once, so a connection that stays long has not finished its request, or does not read its answer.
pub const MAX_CONNECTIONS: usize = 64;

/// How long a connection may take to send the head of a request, and how long it may be idle between requests.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// How long a connection may last in all. So one that never reads its answer ends, too.
const CONNECTION_TIME: Duration = Duration::from_secs(600);

/// How long requests may still take once the server stops.
const STOP_TIME: Duration = Duration::from_secs(2);

/// How long to wait after the system refused a connection, mostly because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The admin HTTP, running as tasks of the current runtime until it is stopped or dropped.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl AdminServer {
    /// Serves on a listener.
    ///
    /// # Errors
    /// If the listener's address cannot be read.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    pub fn start(listener: TcpListener, admin: Admin) -> io::Result<AdminServer> {
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let tls = admin.tls.clone();
        let accepting = tokio::spawn(accept(listener, tls, route::router(admin), stopped));
        Ok(AdminServer {
            address,
            stop,
            accepting,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections, waits at most two seconds for the requests that are being served, and ends.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // The accepting task ends by itself. If it panicked, there is nothing left to stop.
        let _ = (&mut self.accepting).await;
    }
}

/// Ends all connections at once.
impl Drop for AdminServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    stopped: watch::Receiver<bool>,
) {
    let mut places = Places::default();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // In this order: else a flood of connections could delay the stop.
            biased;
            () = told_to_stop(&stopped) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    places.make_room();
                    let heard = places.clock.stamp();
                    let serve = serve(stream, from, tls.clone(), router.clone(), Arc::clone(&heard), places.clock.clone(), stopped.clone());
                    let end = connections.spawn(serve);
                    places.taken.push((heard, end));
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin HTTP cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    // Connections that have not ended by then are aborted when the set is dropped.
    let _ = timeout(STOP_TIME, all_ended).await;
}

/// The open connections, and when each was last heard from.
#[derive(Default)]
struct Places {
    taken: Vec<(Arc<AtomicU64>, AbortHandle)>,
    clock: Order,
}

/// A counter that tells which of two events came first.
#[derive(Clone, Default)]
struct Order(Arc<AtomicU64>);

impl Order {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn stamp(&self) -> Arc<AtomicU64> {
        Arc::new(AtomicU64::new(self.next()))
    }
}

impl Places {
    /// Makes room for one more connection.
    fn make_room(&mut self) {
        self.taken.retain(|(_, end)| !end.is_finished());
        if self.taken.len() < MAX_CONNECTIONS {
            return;
        }
        let heard = |place: &usize| self.taken[*place].0.load(Ordering::Relaxed);
        if let Some(silent) = (0..self.taken.len()).min_by_key(heard) {
            self.taken.swap_remove(silent).1.abort();
        }
    }
}

/// Returns once the server is told to stop, or is dropped.
async fn told_to_stop(stopped: &watch::Receiver<bool>) {
    let _ = stopped.clone().wait_for(|stopped| *stopped).await;
}

async fn serve(
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<Arc<Tls>>,
    router: Router,
    heard: Arc<AtomicU64>,
    clock: Order,
    stopped: watch::Receiver<bool>,
) {
    // An answer is one small write; waiting to merge it with another would only delay it.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    // If the connection is broken already, its local address is unknown, and it is not served.
    let Ok(to) = stream.local_addr() else {
        return;
    };
    let stream = match &tls {
        None => Link::Plain(stream),
        Some(tls) => match tls.accept_admin(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "an admin connection is not protected");
                return;
            }
        },
    };
    let service = service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Ends { from, to });
        heard.store(clock.next(), Ordering::Relaxed);
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = told_to_stop(&stopped) => None,
        () = sleep(CONNECTION_TIME) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            // The current request may end, if it does so in time.
            connection.as_mut().graceful_shutdown();
            timeout(STOP_TIME, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection broke");
    }
}
