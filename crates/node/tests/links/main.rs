//! Two nodes and what goes over the link between them, frame by frame.
mod long_frames;
mod machine;
