//! What a node stores is for its own user alone: clients' data, and the identity that its peers know.
use rustix::fs::Mode;
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// What is created from now on, by anything in this process, is for its user alone: files 0600, directories 0700. A data directory that is
/// there already becomes so; what is in it cannot be reached then either, whatever its own mode is.
pub(super) fn keep_private(node: &str, data: &Path) {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let Ok(found) = fs::metadata(data) else {
        // It will be created.
        return;
    };
    if found.permissions().mode() & 0o077 == 0 {
        return;
    }
    if let Err(error) = fs::set_permissions(data, fs::Permissions::from_mode(0o700)) {
        tracing::warn!(
            node,
            "the data directory {} can be read by others, and that cannot be changed: {error}",
            data.display()
        );
    }
}
