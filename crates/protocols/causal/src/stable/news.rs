//! # When to send what is news
//!
//! A version of site a is shown at site b when all partitions of a have promised its time, and b's root has heard from all of b's partitions that they
//! have these promises. If all of that were done at intervals, the version would wait for each of them. So what is news is sent at once:
//!
//! ```text
//!   site a, partition 1                partition 0 (root)         site b, partition 1        partition 0 (root)
//!      | x stamped 17                     |                          |                          |
//!      | ~~~~ x@17, heartbeat 17 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~> | VV[a] = 17               |
//!      | -- Up, written 17 -------------> | ~~~~ heartbeat 18 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~> | VV[a] = 18
//!      | <---------- Down, written 17 --- |                          | -- Up [a: 17] ---------> | DSV[a] = 17
//!      |                                  |                          | <------ Down [a: 17] --- |
//! ```
//!
//! - The partition that has written sends its heartbeat right behind the version, and reports the version's stamp to its parent.
//! - The root passes the newest stamp on. Each partition that has not promised that much yet sends a heartbeat, too.
//! - At the other site, each partition reports when a heartbeat has raised VV, and each parent when a report has raised the minimum. Heartbeats say
//!   what was written at their site. If that is stable already, nobody waits for the news, and it is reported at the next turn.
//!
//! Three things keep this cheap when much is written, and on slow machines:
//!
//! - A partition sends no more than one heartbeat in a pause, and two reports, on average. What is news within a pause is sent at its end.
//! - Pauses end at the same moments for all partitions of a node. So their heartbeats travel together and wake the nodes of other sites once.
//! - Few reports are under way between two partitions (see `reports.rs`). Of the heartbeats that wait for a link, only the
//!   first and the newest are kept.
use super::{Message, Stable, Timer};
use turnbuckle_core::{Context, Hlc, Micros, Protocol};

/// After a silence, this number of heartbeats is sent without a pause. So are reports.
const BURST: u32 = 4;

/// What a partition has to send, and when it may.
#[derive(Debug)]
pub struct News {
    /// `None`: nothing is sent before its turn.
    pause: Option<Micros>,
    /// What the last heartbeat promised.
    promised: Hlc,
    /// When the next heartbeat and the next report may be sent, in monotonic time.
    next_promise: Micros,
    next_report: Micros,
    /// Whether a heartbeat must be sent soon, and whether there may be something to report.
    wants_promise: bool,
    wants_report: bool,
    /// The time for which [`Timer::News`] is set.
    set_for: Option<Micros>,
}

impl News {
    pub fn new(pause: Option<Micros>) -> News {
        News {
            pause,
            promised: Hlc::ZERO,
            next_promise: Micros(0),
            next_report: Micros(0),
            wants_promise: false,
            wants_report: false,
            set_for: None,
        }
    }

    /// A heartbeat with this promise is sent.
    pub fn promised(&mut self, now: Micros, promise: Hlc) {
        if let Some(pause) = self.pause {
            self.next_promise = after(self.next_promise, now, pause);
        }
        self.promised = promise;
        self.wants_promise = false;
    }

    /// A report is sent.
    pub fn reported(&mut self, now: Micros) {
        if let Some(pause) = self.pause {
            self.next_report = after(self.next_report, now, Micros(pause.0 / 2));
        }
    }

    /// A version with this stamp was written in this site.
    pub fn written(&mut self, at: Hlc) {
        if at > self.promised && self.pause.is_some() {
            self.wants_promise = true;
            self.wants_report = true;
        }
    }

    /// Something has arrived that may have to be reported.
    pub fn arrived(&mut self) {
        self.wants_report = self.pause.is_some();
    }
}

/// When the next one may be sent, if one is sent now that might have been sent from `due` on. If that is not now, it is at a multiple of the pause: then
/// the partitions of a node send together, and links and other nodes are woken once for all of them.
fn after(due: Micros, now: Micros, pause: Micros) -> Micros {
    let spared = Micros(u64::from(BURST) * pause.0);
    // One that is sent in its turn may come before that.
    let next = due.min(now).max(now.since(spared)) + pause;
    match next > now {
        true => Micros(next.0.next_multiple_of(pause.0)),
        false => next,
    }
}

/// What is to be sent now.
pub struct Due {
    /// A heartbeat.
    pub promise: bool,
    /// A report, if there is something to report.
    pub report: bool,
}

impl Stable {
    /// A version of this partition was written. The heartbeat that speaks of it must be sent behind it, and so behind all versions of a transaction.
    pub fn has_written(&mut self, at: Hlc) {
        self.reports.heard_of(self.me.replica(), at);
        self.news.written(at);
    }

    /// What is to be sent now. For what must wait, the timer is set.
    pub fn due<P, X>(&mut self, cx: &mut Context<'_, P>) -> Due
    where
        P: Protocol<Timer = Timer, Message = Message<X>>,
    {
        let now = cx.now.monotonic;
        let news = &mut self.news;
        let wanted = [
            (news.wants_promise, news.next_promise),
            (news.wants_report, news.next_report),
        ];
        let [promise, report] = wanted.map(|(is_wanted, due)| is_wanted && due <= now);
        let later = wanted
            .into_iter()
            .filter(|&(is_wanted, due)| is_wanted && due > now);
        if let Some(due) = later.map(|(_, due)| due).min()
            && news.set_for.is_none_or(|set_for| due < set_for)
        {
            news.set_for = Some(due);
            cx.set_timer(Timer::News, due.since(now));
        }
        news.wants_report &= !report;
        Due { promise, report }
    }

    /// [`Timer::News`] has fired.
    pub fn pause_is_over(&mut self) {
        self.news.set_for = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Micros = Micros(2_000);

    /// When heartbeats are sent if there is news at these times.
    fn sent(news_at: impl IntoIterator<Item = u64>, until: u64) -> Vec<u64> {
        let (mut news, mut sent) = (News::new(Some(PAUSE)), Vec::new());
        let mut news_at = news_at.into_iter().peekable();
        for now in 0..until {
            while news_at.next_if_eq(&now).is_some() {
                news.written(Hlc(now + 1));
            }
            if news.wants_promise && news.next_promise.0 <= now {
                news.promised(Micros(now), Hlc(now + 1));
                sent.push(now);
            }
        }
        sent
    }

    #[test]
    fn what_is_seldom_is_sent_at_once() {
        let at = [20_001, 20_003, 21_500, 40_001, 60_007];
        assert_eq!(sent(at, 70_000), at);
    }

    #[test]
    fn what_is_always_there_is_sent_at_multiples_of_the_pause() {
        let all = sent(10_001..110_001, 110_001);
        let (burst, rest) = all.split_at(BURST as usize + 1);
        assert!(burst.iter().all(|at| *at < 10_100), "{burst:?}");
        assert!(rest.iter().all(|at| at % PAUSE.0 == 0), "{rest:?}");
        assert!(rest.windows(2).all(|two| two[1] - two[0] == PAUSE.0), "{rest:?}");
    }

    #[test]
    fn the_last_news_is_sent_too() {
        let all = sent(10_001..30_001, 100_000);
        assert!(
            all.last().is_some_and(|at| (30_000..32_001).contains(at)),
            "{all:?}"
        );
    }
}
