use super::{Line, Message, Numbers, Report, Stable, Timer};
use std::collections::BTreeMap;
use turnbuckle_core::{Context, Hlc, Micros, Now, Protocol, ReplicaId, ServerId, Vector};

/// What was reported in a site's tree.
#[derive(Debug, Default)]
pub struct Reports {
    /// The children that have reported.
    children: BTreeMap<u16, Child>,
    parent: Way,
    /// For each site, the newest stamp of a version that is known to have been written there.
    written: Vector,
    /// What this partition reported last, or at the root passed on: what is stable, and what was written.
    told_stable: Vector,
    told_written: Vector,
    /// Whether there is a report for the parent that waits for room.
    is_late: bool,
}

#[derive(Debug)]
struct Child {
    /// What it last reported, and whether nothing was told since.
    report: Report,
    is_new: bool,
    way: Way,
    /// What it is to be told when there is room.
    owed: Option<Report>,
}

/// The reports between this partition and another one, in both directions. A link inside the site may be slow, or the node there: no more than
/// [`Way::ROOM`] of them are under way, and others wait and are replaced by newer ones.
#[derive(Debug, Default)]
struct Way {
    /// The number of the last report that was sent, and when that was, in monotonic time.
    sent: u64,
    sent_at: Micros,
    /// The number of the last one that has arrived there, as far as it is known.
    arrived: u64,
    /// The number of the last report from there, and how many have come since one was sent there.
    heard: u64,
    unanswered: u64,
}

impl Way {
    const ROOM: u64 = 4;

    /// A report that has not been answered after this time counts as lost.
    const LOST_AFTER: Micros = Micros::from_millis(50);

    /// Whether a report may be sent. The other end may be waiting for it, if it has sent as many as it may.
    fn has_room(&self, now: Micros) -> bool {
        let is_waited_for = self.unanswered >= Way::ROOM;
        let is_lost = now.since(self.sent_at) >= Way::LOST_AFTER;
        self.sent - self.arrived < Way::ROOM || is_waited_for || is_lost
    }

    fn next(&mut self, now: Micros) -> Numbers {
        self.sent += 1;
        self.sent_at = now;
        self.unanswered = 0;
        Numbers {
            number: self.sent,
            heard: self.heard,
        }
    }

    fn hear(&mut self, numbers: Numbers) {
        self.heard = numbers.number;
        self.unanswered += 1;
        // After a restart, what was heard before it is more than what was sent.
        self.arrived = self.arrived.max(numbers.heard.min(self.sent));
    }
}

impl Reports {
    /// For each site, the newest stamp of a version that is known to have been written there.
    pub fn written(&self) -> &Vector {
        &self.written
    }

    /// A version with this stamp was written at a site.
    pub fn heard_of(&mut self, replica: ReplicaId, at: Hlc) {
        self.written.raise(replica, at);
    }
}

impl Stable {
    /// Sets the timer of the next regular report. A report of news stands in for one. A partition with children waits twice as long: normally it reports
    /// when they have.
    fn wait_for_turn<P: Protocol<Timer = Timer>>(&self, cx: &mut Context<'_, P>) {
        let theta = self.pace.theta;
        let is_leaf = self.tree.children().next().is_none();
        cx.set_timer(Timer::Stabilise, if is_leaf { theta } else { theta + theta });
    }

    /// Nothing was reported for a while (Algorithm 5.3, lines 1-2). `snapshots` are the vectors of snapshots under way.
    pub fn stabilise<'a, P, X>(
        &mut self,
        cx: &mut Context<'_, P>,
        snapshots: impl Iterator<Item = &'a Vector>,
    ) where
        P: Protocol<Timer = Timer, Line = Line, Message = Message<X>>,
    {
        self.wait_for_turn(cx);
        if let Some(report) = self.report_of_subtree(cx.now, snapshots) {
            self.tell(cx, report);
        }
    }

    /// All children have reported: the report to the parent need not wait for this partition's own turn.
    pub fn all_reported<'a, P, X>(
        &mut self,
        cx: &mut Context<'_, P>,
        snapshots: impl Iterator<Item = &'a Vector>,
    ) where
        P: Protocol<Timer = Timer, Line = Line, Message = Message<X>>,
    {
        if let Some(report) = self.report_of_subtree(cx.now, snapshots) {
            self.tell(cx, report);
        }
    }

    /// Reports what is news, if anything is.
    pub fn report_news<'a, P, X>(
        &mut self,
        cx: &mut Context<'_, P>,
        snapshots: impl Iterator<Item = &'a Vector>,
    ) where
        P: Protocol<Timer = Timer, Line = Line, Message = Message<X>>,
    {
        let report = self.report_of_subtree(cx.now, snapshots);
        if let Some(report) = report.filter(|report| self.reports.is_late || self.is_news(report)) {
            self.tell(cx, report);
        }
    }

    /// Whether a report says more than the last one. That something was written is news. That more is stable of a site is news if what was stable did not
    /// cover what was written there. Of the own site that is no news: its versions are visible at once.
    fn is_news(&self, report: &Report) -> bool {
        let last = &self.reports;
        let rises = |(replica, written)| {
            let entry = self.entry_of(replica);
            let before = last.told_stable.at(entry);
            let is_own = replica == self.me.replica();
            report.stable.at(entry) > before && before < written && (self.scalar || !is_own)
        };
        !last.told_written.covers(&report.written) || report.written.entries().any(rises)
    }

    /// Reports to the parent, or at the root to all partitions, what this subtree has.
    fn tell<P, X>(&mut self, cx: &mut Context<'_, P>, report: Report)
    where
        P: Protocol<Timer = Timer, Line = Line, Message = Message<X>>,
    {
        let now = cx.now.monotonic;
        let parent = self.tree.parent();
        self.reports.is_late = parent.is_some() && !self.reports.parent.has_room(now);
        if self.reports.is_late {
            return;
        }
        self.reports.told_stable = report.stable.clone();
        self.reports.told_written = report.written.clone();
        self.wait_for_turn(cx);
        for child in self.reports.children.values_mut() {
            child.is_new = false;
        }
        self.news.reported(now);
        match parent {
            Some(parent) => {
                let numbers = self.reports.parent.next(now);
                cx.send(self.partition(parent), Message::Up(report, numbers));
            }
            None => self.pass_on(cx, report),
        }
    }

    /// What this subtree has. `None` while nothing is known of the subtree of a child.
    fn report_of_subtree<'a>(&self, now: Now, snapshots: impl Iterator<Item = &'a Vector>) -> Option<Report> {
        let mut report = self.report(now, snapshots);
        for child in self.tree.children() {
            report.meet(&self.reports.children.get(&child)?.report);
        }
        Some(report)
    }

    fn report<'a>(&self, now: Now, snapshots: impl Iterator<Item = &'a Vector>) -> Report {
        let mut collectable = self.dsv.clone();
        snapshots.for_each(|snapshot| collectable.meet(snapshot));
        let mut walls = self.walls.clone();
        walls.set(self.me.replica(), Hlc::from_wall(self.clock_wall));
        let whole = |vector: &Vector| match self.scalar {
            true => Vector::filled(1, vector.oldest(self.sites)),
            false => vector.clone(),
        };
        Report {
            stable: whole(&self.vv),
            walls: whole(&walls),
            collectable,
            written: self.reports.written.clone(),
            clock: match self.scalar {
                true => self.vv.newest(),
                false => self.vv.at(self.me.replica()),
            },
            clock_wall: now.wall.earliest,
        }
    }

    /// Takes in what a child has reported. What it is still to be told it is told, if there is room now. Returns whether all children have reported since
    /// something was told.
    pub fn on_up<P, X>(
        &mut self,
        cx: &mut Context<'_, P>,
        from: ServerId,
        report: Report,
        numbers: Numbers,
    ) -> bool
    where
        P: Protocol<Message = Message<X>>,
    {
        let partition = from.partition;
        if !self.tree.children().any(|child| child == partition) {
            return false;
        }
        self.reports.written.merge(&report.written);
        let child = self.reports.children.entry(partition).or_insert_with(|| Child {
            report: Report::default(),
            is_new: false,
            way: Way::default(),
            owed: None,
        });
        child.report = report;
        child.is_new = true;
        child.way.hear(numbers);
        if let Some(owed) = child.owed.take() {
            self.pass_on_to(cx, partition, owed);
        }
        self.news.arrived();
        let children = &self.reports.children;
        self.tree
            .children()
            .all(|child| children.get(&child).is_some_and(|child| child.is_new))
    }

    /// Takes in what the root has found, and passes it on. What this partition would have reported meanwhile it reports now.
    pub fn on_down<P, X>(&mut self, cx: &mut Context<'_, P>, report: Report, numbers: Numbers)
    where
        P: Protocol<Timer = Timer, Line = Line, Message = Message<X>>,
    {
        self.reports.parent.hear(numbers);
        // What is stable here may not have been news before this was known to be written.
        if self.reports.is_late || !self.reports.written.covers(&report.written) {
            self.news.arrived();
        }
        // The root knows it.
        self.reports.told_written.merge(&report.written);
        self.pass_on(cx, report);
    }

    fn pass_on<P, X>(&mut self, cx: &mut Context<'_, P>, report: Report)
    where
        P: Protocol<Line = Line, Message = Message<X>>,
    {
        for child in self.tree.children() {
            self.pass_on_to(cx, child, report.clone());
        }
        self.reports.written.merge(&report.written);
        self.news.written(report.written.at(self.me.replica()));
        self.newest = self.newest.max(report.clock);
        if !self.scalar {
            cx.observe(report.clock);
            self.clock_wall = self.clock_wall.max(report.clock_wall);
        }
        // The walls speak of everything that is stable, and this partition may have to wait for some of that.
        if self.absent(&report.stable).is_none() {
            self.dsv_walls.merge(&report.walls);
            if !self.scalar {
                self.advance_walls(cx);
            }
        }
        self.collectable.merge(&report.collectable);
        self.raise(cx, &report.stable);
        self.collect();
    }

    /// Tells a child, or notes that it is to be told. A child that has not reported yet is told nothing.
    fn pass_on_to<P, X>(&mut self, cx: &mut Context<'_, P>, partition: u16, report: Report)
    where
        P: Protocol<Message = Message<X>>,
    {
        let to = self.partition(partition);
        let Some(child) = self.reports.children.get_mut(&partition) else {
            return;
        };
        if child.way.has_room(cx.now.monotonic) {
            child.owed = None;
            let numbers = child.way.next(cx.now.monotonic);
            cx.send(to, Message::Down(report, numbers));
        } else {
            child.owed = Some(report);
        }
    }

    fn partition(&self, partition: u16) -> ServerId {
        ServerId { partition, ..self.me }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_000_000);

    /// Sends what there is room for. Returns the last of them, and how many they were.
    fn send_all(way: &mut Way, now: Micros) -> (Numbers, u64) {
        let (mut last, mut count) = (Numbers::default(), 0);
        while way.has_room(now) && count < 100 {
            last = way.next(now);
            count += 1;
        }
        (last, count)
    }

    #[test]
    fn few_reports_are_under_way() {
        let (mut here, mut there) = (Way::default(), Way::default());
        let (last, count) = send_all(&mut here, NOW);
        assert_eq!(count, Way::ROOM);
        there.hear(last);
        here.hear(there.next(NOW));
        assert_eq!(send_all(&mut here, NOW).1, Way::ROOM, "all of them have arrived");
        let later = NOW + Way::LOST_AFTER;
        assert_eq!(
            send_all(&mut here, later).1,
            1,
            "without an answer it is tried again"
        );
    }

    #[test]
    fn two_ends_that_have_sent_all_they_may_do_not_wait_for_each_other() {
        let (mut here, mut there) = (Way::default(), Way::default());
        let mut crossing = Vec::new();
        while here.has_room(NOW) {
            crossing.push((here.next(NOW), there.next(NOW)));
        }
        for (to, from) in crossing {
            there.hear(to);
            here.hear(from);
        }
        assert_eq!(send_all(&mut here, NOW).1, 1);
        assert_eq!(send_all(&mut there, NOW).1, 1);
    }

    #[test]
    fn a_restart_of_either_end_stops_nothing() {
        let (mut here, mut there) = (Way::default(), Way::default());
        for _ in 0..3 {
            there.hear(send_all(&mut here, NOW).0);
            here.hear(there.next(NOW));
        }
        there = Way::default();
        there.hear(send_all(&mut here, NOW).0);
        here.hear(there.next(NOW));
        assert_eq!(send_all(&mut here, NOW).1, Way::ROOM);
        here = Way::default();
        // It was sent before the other end had heard of the restart.
        here.hear(there.next(NOW));
        let (last, count) = send_all(&mut here, NOW);
        assert_eq!(count, Way::ROOM);
        there.hear(last);
        here.hear(there.next(NOW));
        assert_eq!(send_all(&mut here, NOW).1, Way::ROOM);
    }
}
