//! Slurm's lists of nodes, such as `n[1-2,07],m`.

/// Maximum number of bytes of a name before its number, and of a number. No node's name has more, and each expanded name would repeat them.
const MOST_BYTES: usize = 255;

/// Expands a list of nodes to its first `most` names: `n[1-2,07],m` becomes n1, n2, n07 and m. A part in any other form stays as
/// it is.
pub fn expanded(list: &str, most: usize) -> Vec<String> {
    let mut names = Vec::new();
    // Commas outside of brackets separate nodes; those in brackets separate ranges of one node name.
    let mut open_brackets = 0_usize;
    let parts = list.split(|c: char| {
        open_brackets = match c {
            '[' => open_brackets + 1,
            ']' => open_brackets.saturating_sub(1),
            _ => open_brackets,
        };
        c == ',' && open_brackets == 0
    });
    for part in parts.filter(|part| !part.is_empty()) {
        if names.len() >= most {
            break;
        }
        match prefix_and_ranges(part) {
            Some((prefix, ranges)) => {
                for range in ranges.split(',') {
                    add_range(&mut names, prefix, range, most);
                }
            }
            None => names.push(part.to_owned()),
        }
    }
    names.truncate(most);
    names
}

/// Splits `n[1-2,07]` into what is before the brackets and what is in them. `None`: `part` is in another form.
fn prefix_and_ranges(part: &str) -> Option<(&str, &str)> {
    let (prefix, rest) = part.split_once('[')?;
    let ranges = rest.strip_suffix(']')?;
    (!ranges.contains('[') && prefix.len() <= MOST_BYTES).then_some((prefix, ranges))
}

/// Adds a name for each number of a range such as `1-3` or `7`, until there are `most` names. A range in another form stays as it is.
fn add_range(names: &mut Vec<String>, prefix: &str, range: &str, most: usize) {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let numbers = Option::zip(first.parse::<u64>().ok(), last.parse::<u64>().ok());
    let Some((from, to)) = numbers.filter(|_| first.len() <= MOST_BYTES) else {
        names.push(format!("{prefix}[{range}]"));
        return;
    };
    // `[08-10]` means 08, 09, 10.
    let width = first.len();
    let room = most.saturating_sub(names.len());
    names.extend((from..=to).take(room).map(|number| format!("{prefix}{number:0width$}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_expanded() {
        let all = |list: &str| expanded(list, 1000);
        assert_eq!(all("n[1-3,07],m,x[a],y[1-2]z"), ["n1", "n2", "n3", "n07", "m", "x[a]", "y[1-2]z"]);
        assert_eq!(all("r[01-02]"), ["r01", "r02"]);
        assert_eq!(all("n[1-999999999,1-999999999],m[1-9]").len(), 1000);
        assert_eq!(all("a[1][2],"), ["a[1][2]"]);
        assert_eq!(all("a],b[1-2]"), ["a]", "b1", "b2"], "a bracket that none opens");
        for long in ["x".repeat(300) + "[1-9]", format!("n[{}1-9]", "0".repeat(300))] {
            assert_eq!(all(&long).len(), 1, "it is not repeated");
        }
    }
}
