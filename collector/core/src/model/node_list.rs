//! Slurm's lists of nodes, such as `n[1-2,07],m`.

/// Most bytes of a name before its number, and of a number: more is no node's name, and would be repeated for each.
const MOST_BYTES: usize = 255;

/// Expands such a list to names, the first `most`: `n[1-2,07],m` to n1, n2, n07 and m. What it can't read stays as it is.
#[must_use]
pub fn expanded(list: &str, most: usize) -> Vec<String> {
    let mut names = Vec::new();
    // Commas in brackets separate ranges, all others nodes.
    let mut depth = 0;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.is_empty()) {
        if names.len() >= most {
            break;
        }
        let brackets =
            part.split_once('[').and_then(|(before, rest)| Some((before, rest.strip_suffix(']')?)));
        let Some((before, ranges)) =
            brackets.filter(|(before, ranges)| !ranges.contains('[') && before.len() <= MOST_BYTES)
        else {
            names.push(part.to_owned());
            continue;
        };
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let numbers = Option::zip(first.parse::<u64>().ok(), last.parse::<u64>().ok());
            let Some((from, to)) = numbers.filter(|_| first.len() <= MOST_BYTES) else {
                names.push(format!("{before}[{range}]"));
                continue;
            };
            // `[08-10]` means 08, 09, 10.
            let width = first.len();
            let room = most.saturating_sub(names.len());
            names.extend((from..=to).take(room).map(|number| format!("{before}{number:0width$}")));
        }
    }
    names.truncate(most);
    names
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
        for long in ["x".repeat(300) + "[1-9]", format!("n[{}1-9]", "0".repeat(300))] {
            assert_eq!(all(&long).len(), 1, "it is not repeated");
        }
    }
}
