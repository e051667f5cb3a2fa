//! The notes of docker's proxy (`--containers`): a file with a line of JSON for each container that was to be created.
//!
//! A process of the tree can write to the file, or put another in its place. So what is read is bounded and checked.

use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::model::containers::{ContainerNote, MOST_OF_NOTES};
use crate::model::observation::Observation;
use crate::sys::files::open_regular;

/// The number of digits of a container's id.
const ID: usize = 64;
/// Maximum number of bytes of a client's name (that of a process has 15).
const MOST_OF_CLIENT: usize = 64;

/// Reads the notes after the first `read_bytes` bytes, which were read before. `None`: there are none.
pub(super) fn after(path: &Path, read_bytes: u64) -> Option<Observation> {
    let (file, found) = open_regular(path, OFlags::RDONLY).ok()??;
    let length = found.len().min(MOST_OF_NOTES);
    let mut bytes = vec![0; usize::try_from(length.checked_sub(read_bytes)?).ok()?];
    let read = file.read_at(&mut bytes, read_bytes).ok()?;
    bytes.truncate(read);
    // A line that is not whole yet is left for the next time.
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n')? + 1);
    let notes = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let notes = notes.filter(is_plausible).collect();
    Some(Observation::ContainerNotes { read_bytes: read_bytes + bytes.len() as u64, notes })
}

fn is_plausible(note: &ContainerNote) -> bool {
    match note {
        ContainerNote::Tracked { id, client } => {
            id.len() == ID
                && id.bytes().all(|byte| byte.is_ascii_hexdigit())
                && client.len() <= MOST_OF_CLIENT
        }
        ContainerNote::NotTracked(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::containers::NotTracked;

    // Requirement: SEE-140
    #[test]
    fn whole_lines_are_read_once_and_what_cannot_be_a_note_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        let id = "ab".repeat(32);
        let lines = format!(
            "{{\"Tracked\":{{\"id\":\"{id}\",\"client\":\"docker\"}}}}\n{{\"NotTracked\":\"Kept\"}}\nx\n\
             {{\"Tracked\":{{\"id\":\"../x\",\"client\":\"docker\"}}}}\n{{\"NotTracked\":\"Ke"
        );
        std::fs::write(&path, &lines).unwrap();
        let tracked = ContainerNote::Tracked { id, client: "docker".into() };
        let read_bytes = lines.rfind('\n').unwrap() as u64 + 1;
        let notes = vec![tracked, ContainerNote::NotTracked(NotTracked::Kept)];
        let read = |path: &Path, from| match after(path, from) {
            Some(Observation::ContainerNotes { read_bytes, notes }) => Some((read_bytes, notes)),
            _ => None,
        };
        assert_eq!(read(&path, 0), Some((read_bytes, notes)));
        assert_eq!(read(&path, read_bytes), None);
        std::fs::write(&path, format!("{lines}pt\"}}\n")).unwrap();
        let Some(Observation::ContainerNotes { notes, .. }) = after(&path, read_bytes) else {
            panic!("none")
        };
        assert_eq!(notes, [ContainerNote::NotTracked(NotTracked::Kept)]);
        // It was truncated, or is no file.
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&path, read_bytes), None);
        for missing in [directory.path().join("none"), directory.path().to_owned()] {
            assert_eq!(read(&missing, 0), None);
        }
    }
}
