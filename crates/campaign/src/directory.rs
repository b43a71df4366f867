//! Operations on data directories: to empty, copy and damage them.
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use turnbuckle_workload::Random;

/// Removes a directory with everything in it.
///
/// # Errors
/// If it cannot be removed.
pub fn empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes `to` a copy of `from`.
///
/// # Errors
/// If something cannot be read or written.
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    empty(to)?;
    copy(from, to)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}

/// Changes one byte of one table file below a directory. Both are drawn. Returns the file and the offset of the byte, or `None` if there is
/// no such file.
///
/// # Errors
/// If something cannot be read or written.
pub fn damage(store: &Path, draw: u64) -> io::Result<Option<(PathBuf, u64)>> {
    let mut files = Vec::new();
    table_files(store, &mut files)?;
    files.sort();
    if files.is_empty() {
        return Ok(None);
    }
    let mut random = Random::new(draw, 0);
    let path = files.swap_remove(random.below(files.len() as u64) as usize);
    let mut file = File::options().read(true).write(true).open(&path)?;
    let place = random.below(file.metadata()?.len());
    let mut byte = [0];
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut byte)?;
    byte[0] ^= 1 << random.below(8);
    file.seek(SeekFrom::Start(place))?;
    file.write_all(&byte)?;
    Ok(Some((path, place)))
}

/// Collects the files of rows: those in a directory `tables` that are not empty.
fn table_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let is_tables = directory.file_name().is_some_and(|name| name == "tables");
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            table_files(&entry.path(), files)?;
        } else if is_tables && entry.metadata()?.len() > 0 {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_copied_damaged_in_one_byte_and_emptied() {
        let root = tempfile::tempdir().expect("a directory");
        let (data, kept) = (root.path().join("data"), root.path().join("kept"));
        fs::create_dir_all(data.join("store/1/tables")).expect("a directory");
        fs::write(data.join("store/1/tables/7"), [0; 100]).expect("it can be written");
        fs::write(data.join("store/1/other"), [0; 100]).expect("it can be written");
        replace(&data, &kept).expect("it is copied");
        let (file, place) = damage(&data, 5).expect("it can be").expect("there is a table");
        assert_eq!(file, data.join("store/1/tables/7"));
        let bytes = fs::read(&file).expect("it is there");
        assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 1);
        assert_ne!(bytes[place as usize], 0);
        replace(&kept, &data).expect("it is copied back");
        assert_eq!(fs::read(&file).expect("it is there"), [0; 100]);
        empty(&data).expect("it is emptied");
        empty(&data).expect("and again");
        assert!(!data.exists());
        assert!(damage(&kept.join("store/1/nothing"), 5).is_err());
    }
}
