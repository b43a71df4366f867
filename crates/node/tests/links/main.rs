//! Two nodes and what goes over the link between them, frame by frame.
mod long_chains;
mod long_frames;
mod machine;
mod one_has_it;
mod strangers;
