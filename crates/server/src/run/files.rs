//! A node's files are for its own user only: they hold clients' data, and the identity that its peers know.
use rustix::fs::Mode;
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Makes everything that this process creates from now on private to its user: files have mode 0600, directories 0700. A data directory that exists
/// becomes private, too. Then the files in it cannot be reached, whatever their own modes are.
pub(super) fn keep_private(node: &str, data: &Path) {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let Ok(found) = fs::metadata(data) else {
        // The directory does not exist yet: it will be created with this mode.
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
