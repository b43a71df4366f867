//! A node's background work: what the server's threads do, one step at a time.
//!
//! Each step is an event. The time that a disk takes before the next step is drawn, and everything else that is due meanwhile happens
//! meanwhile.
use super::Event;
use crate::{
    Loss, Rule, World,
    machine::{Job, Worker},
};
use std::task::Poll;
use turnbuckle_core::{Micros, Now, Session};
use turnbuckle_log::LogError;
use turnbuckle_node::{NodeId, WorkError};

/// The result of a step.
enum Done {
    /// There are more steps.
    Step,
    Sync(Result<(), LogError>),
    Fetch(bool),
    Maintenance(Result<bool, WorkError>),
}

impl Job {
    fn step(&mut self, now: Now) -> Done {
        match self {
            Job::Sync(work) => match work.step(now) {
                Poll::Pending => Done::Step,
                Poll::Ready(synced) => Done::Sync(synced),
            },
            Job::Fetch(work) => match work.step(now) {
                Poll::Pending => Done::Step,
                Poll::Ready(any) => Done::Fetch(any),
            },
            Job::Maintain(work) => match work.step(now) {
                Poll::Pending => Done::Step,
                Poll::Ready(done) => Done::Maintenance(done),
            },
            Job::Checkpoint(work) => match work.step(now) {
                Poll::Pending => Done::Step,
                Poll::Ready(done) => Done::Maintenance(done.map(|()| true)),
            },
        }
    }
}

impl<S: Session> World<S> {
    /// Work waits. Each worker looks whether it is for it.
    pub(super) fn wake_workers(&mut self, node: usize) {
        for worker in [Worker::Maintain, Worker::Fetch(0), Worker::Fetch(1)] {
            match self.process(node).jobs.contains_key(&worker) {
                // It looks once more when its job is done.
                true => drop(self.process(node).woken.insert(worker)),
                false => {
                    let after = self.random.span(self.options.work);
                    self.want_worker(node, worker, after);
                }
            }
        }
    }

    pub(super) fn want_sync(&mut self, node: usize) {
        if !self.process(node).jobs.contains_key(&Worker::Sync) {
            self.want_worker(node, Worker::Sync, Micros(0));
        }
    }

    /// Makes a node take a checkpoint, if it runs: now, or when its maintenance has finished its current job.
    pub fn checkpoint(&mut self, node: NodeId) {
        let node = super::index(node);
        if self.machines[node].process.is_some() {
            self.process(node).checkpoint_wanted = true;
            if !self.process(node).jobs.contains_key(&Worker::Maintain) {
                self.want_worker(node, Worker::Maintain, Micros(0));
            }
        }
    }

    /// Whether a checkpoint that was asked for is not finished yet.
    pub fn is_checkpointing(&self, node: NodeId) -> bool {
        let process = self.machines[super::index(node)].process.as_ref();
        process.is_some_and(|process| {
            let job = process.jobs.get(&Worker::Maintain);
            process.checkpoint_wanted || matches!(job, Some(Job::Checkpoint(_)))
        })
    }

    fn want_worker(&mut self, node: usize, worker: Worker, after: Micros) {
        let life = self.machines[node].lives;
        if self.process(node).due.workers.insert(worker) {
            self.schedule(after, Event::Work { node, life, worker });
        }
    }

    /// Does the next step of a worker's job, or the first one of a new job.
    pub(super) fn work(&mut self, node: usize, worker: Worker) {
        let now = self.now(node);
        let process = self.process(node);
        process.due.workers.remove(&worker);
        let job = process.jobs.remove(&worker);
        let is_new = job.is_none();
        let mut job = job.unwrap_or_else(|| process.begin(worker));
        match job.step(now) {
            Done::Step => {
                // A sync waits once for the disk. Its later steps take as long as other steps.
                let takes = match matches!(job, Job::Sync(_)) && is_new {
                    true => self.options.sync,
                    false => self.options.disk,
                };
                self.process(node).jobs.insert(worker, job);
                self.machines[node].stepped_at.insert(worker, self.time);
                let usual = self.random.span(takes);
                let after = usual.0.saturating_mul(self.machines[node].slow_disk_percent) / 100;
                self.want_worker(node, worker, Micros(after));
                self.look_after(node);
            }
            Done::Sync(synced) => self.after_sync(node, synced),
            Done::Fetch(any) => self.after_work(node, worker, any),
            Done::Maintenance(done) => self.after_maintenance(node, worker, done),
        }
    }

    fn after_sync(&mut self, node: usize, synced: Result<(), LogError>) {
        if synced.is_ok() {
            // What was written after the disk was asked to sync is not on it.
            let told = self.machines[node].stepped_at.get(&Worker::Sync).copied();
            self.machines[node].synced_at = told.unwrap_or(self.time);
        }
        self.look_after(node);
        self.want_turn(node);
        self.after_log(node, synced);
    }

    fn after_maintenance(&mut self, node: usize, worker: Worker, done: Result<bool, WorkError>) {
        if let Err(error) = &done {
            let machine = &self.machines[node];
            if machine.dying {
                return self.crash(NodeId(node as u16), Loss::Process);
            }
            if matches!(error, WorkError::Damaged { .. }) {
                return self.open_anew(NodeId(node as u16));
            }
            // In reality, a supervisor starts the server again.
            if machine.engine.is_broken() && error.is_final() {
                self.crash(NodeId(node as u16), Loss::Process);
                return self.restart(NodeId(node as u16));
            }
            // Work that fails because of the disk is tried again at the next look.
            if !machine.disk_has_failed && !error.is_damage() && !machine.is_short_of_room() {
                let name = self.node_name(NodeId(node as u16));
                let words =
                    format!("background work of node {name} failed, although its disk has no fault: {error}");
                self.judge.report(Rule::Service, words);
            }
        }
        if self.process(node).checkpoint_wanted {
            self.want_worker(node, Worker::Maintain, Micros(0));
        }
        self.after_work(node, worker, done.unwrap_or(false));
    }

    /// If there was something to do, there may be more.
    fn after_work(&mut self, node: usize, worker: Worker, any: bool) {
        if any {
            self.want_turn(node);
        }
        if self.process(node).woken.remove(&worker) || any {
            self.wake_workers(node);
        }
        self.look_after(node);
    }
}
