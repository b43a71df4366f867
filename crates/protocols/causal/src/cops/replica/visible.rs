use super::{Cops, Cx, Line, Pending, line_of};
use crate::cops::message::{Dependencies, Message};
use crate::cops::waiting::{At, at_of};
use turnbuckle_core::{Key, ServerId, VersionId};

/// Which versions are visible, by dependency checks.
impl Cops {
    pub(super) fn is_visible(&self, id: VersionId) -> bool {
        id.replica == self.me.replica() || self.visible.covers_id(id) || self.above.contains(&at_of(id))
    }

    /// A version of another site is here. It becomes visible when everything that it depends on is visible.
    pub(super) fn look_after(&mut self, cx: &mut Cx<'_>, id: VersionId, nearest: &Dependencies, lazy: bool) {
        let at = at_of(id);
        if self.is_visible(id) || self.pending.contains_key(&at) {
            return;
        }
        let max = self.config.max;
        let has_room = self.pending.len() < max && self.missing < max && self.questions.len() < max;
        if !has_room && !nearest.0.is_empty() {
            // The watermark must not pass it.
            self.unsure.raise(at.0, at.1);
            return;
        }
        let mut missing = 0;
        for (key, needed) in &nearest.0 {
            let partition = cx.topology.partition_of_slot(key.slot());
            let is_here = partition == self.me.partition && self.is_visible(*needed);
            // Versions of this site have been visible here since they were written.
            if needed.replica == self.me.replica() || is_here {
                continue;
            }
            missing += usize::from(self.questions.await_version(partition, key, *needed, at));
            if self
                .questions
                .must_ask(partition, at_of(*needed), cx.now.monotonic, self.config.retry)
            {
                let server = ServerId { partition, ..self.me };
                cx.send(server, Message::DepCheck(key.clone(), *needed));
            }
        }
        self.missing += missing;
        self.pending.insert(at, Pending { missing, lazy });
        if missing == 0 {
            self.become_visible(cx, at);
        }
    }

    pub(super) fn on_dep_check(&mut self, cx: &mut Cx<'_>, from: ServerId, key: &Key, id: VersionId) {
        if self.is_visible(id) {
            // This server needs no message to itself: versions and requests that wait here go on when something becomes visible.
            if from != self.me {
                cx.send(from, Message::Visible(id));
            }
            return;
        }
        if from != self.me
            && (self.questions.len() < self.config.max
                || self.questions.is_open(self.me.partition, at_of(id)))
        {
            self.questions.await_server(self.me.partition, key, id, from);
        }
        self.touch(cx, key, id);
    }

    /// Looks after a version from now on, if it is here and is not looked after yet.
    pub(super) fn touch(&mut self, cx: &mut Cx<'_>, key: &Key, id: VersionId) {
        let found = cx
            .chain(key)
            .and_then(|chain| chain.latest(|version| version.id == id));
        if let Some(nearest) = found.map(|version| version.meta.clone()) {
            self.look_after(cx, id, &nearest, true);
        }
    }

    /// Each of these versions has one missing dependency less.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, versions: Vec<At>) {
        for at in versions {
            let Some(pending) = self.pending.get_mut(&at) else {
                continue;
            };
            pending.missing -= 1;
            self.missing -= 1;
            if pending.missing == 0 {
                self.become_visible(cx, at);
            }
        }
    }

    /// Makes a version visible, and every other one that waited for it alone.
    pub(super) fn become_visible(&mut self, cx: &mut Cx<'_>, first: At) {
        let mut visible = vec![first];
        while let Some(at) = visible.pop() {
            if let Some(pending) = self.pending.remove(&at) {
                self.missing -= pending.missing;
                if !pending.lazy {
                    let took = cx.now.wall.reading.since(at.1.wall());
                    self.spans[usize::from(at.0.0)].add(took);
                }
            }
            if at.1 > self.visible.at(at.0) {
                self.above.insert(at);
                self.fresh = self.fresh.min(at.1);
            }
            let waiting = self.questions.answer(self.me.partition, at);
            for server in waiting.servers {
                cx.send(
                    server,
                    Message::Visible(VersionId {
                        at: at.1,
                        replica: at.0,
                    }),
                );
            }
            for version in waiting.versions {
                if let Some(pending) = self.pending.get_mut(&version) {
                    pending.missing -= 1;
                    self.missing -= 1;
                    if pending.missing == 0 {
                        visible.push(version);
                    }
                }
            }
            if waiting.requests {
                let line = line_of(at);
                let called = &mut self.lines[usize::from(line)];
                *called += 1;
                cx.advance(Line::Version(line), *called);
            }
        }
        // What is forgotten here is looked at again when a request asks for it. `first` is kept: a reader that was woken for it would find it
        // forgotten, and would wait again, forever.
        while self.above.len() > self.config.max.max(1) {
            let Some(&oldest) = self.above.iter().find(|at| **at != first) else {
                break;
            };
            self.above.remove(&oldest);
        }
    }
}
