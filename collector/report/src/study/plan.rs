//! The plan of a study: its variants, and the order of its runs. It is written before the first run, so a study that was
//! stopped goes on as it began.

use serde::{Deserialize, Serialize};

use crate::quote;
use crate::statistics::random::Random;

/// Version of the file. It goes up when a key changes its name or meaning.
const FORM_VERSION: u32 = 1;

/// What is run, how often, and in which order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The version of this form.
    form_version: u32,
    /// What is compared; the first one is what the others are compared with.
    pub variants: Vec<Variant>,
    /// Counted runs of each variant.
    pub runs: usize,
    /// Runs of each variant before the counted ones, which do not count.
    pub warmup: usize,
    /// A shell runs the commands.
    pub shell: bool,
    /// What determines the order.
    pub seed: u64,
    /// The counted runs, in their order.
    pub order: Vec<PlannedRun>,
}

/// A way of doing the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// What the user calls it.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// The command line that prepares each of its runs, and is not tracked.
    pub prepare: Option<String>,
    /// Prefix of the names of the files of its runs.
    pub file: String,
}

/// A run of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// The number of its variant, from 0.
    pub variant: usize,
    /// Its number among the runs of its variant, from 1.
    pub run: usize,
}

/// The key that is read first, because it tells how the others are to be read.
#[derive(Deserialize)]
struct FormVersion {
    form_version: u32,
}

/// Maximum number of runs of a variant, and of runs to warm up.
pub const MOST_RUNS: usize = 10_000;

impl Plan {
    /// Makes a plan. Its order is random, and each round has every variant once. So what changes on the machine meanwhile
    /// is not taken for a difference of the variants.
    pub fn new(variants: Vec<Variant>, runs: usize, warmup: usize, shell: bool, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut round: Vec<usize> = (0..variants.len()).collect();
        let mut order = Vec::with_capacity(runs * variants.len());
        for run in 1..=runs {
            random.shuffle(&mut round);
            order.extend(round.iter().map(|variant| PlannedRun { variant: *variant, run }));
        }
        Self { form_version: FORM_VERSION, variants, runs, warmup, shell, seed, order }
    }

    /// The plan with this number of runs of each variant. Its order begins as before, because the seed determines
    /// the rounds one after another.
    #[must_use]
    pub fn with_runs(self, runs: usize) -> Self {
        Self::new(self.variants, runs, self.warmup, self.shell, self.seed)
    }

    /// The warm-up runs, which do not count: rounds, each in an order of its own. They have another seed, because with the same
    /// one they would be in the order of the first rounds that count.
    pub fn warmup_order(&self) -> Vec<PlannedRun> {
        let seed = self.seed.wrapping_add(1);
        let (runs, warmup) = (self.warmup, 0);
        Self::new(self.variants.clone(), runs, warmup, self.shell, seed).order
    }

    /// Writes the plan as JSON.
    pub fn json(&self) -> String {
        quote::json_pretty(self)
    }

    /// Reads a plan back.
    ///
    /// # Errors
    /// If the text is no plan, damaged, or of a later version. The error is a line that calls the text "it".
    pub fn read(json: &str) -> Result<Self, String> {
        let not_read = |error: serde_json::Error| {
            format!("it is no plan of a study: {}", quote::escape(&error.to_string()))
        };
        let FormVersion { form_version } = serde_json::from_str(json).map_err(not_read)?;
        if form_version > FORM_VERSION {
            return Err(format!(
                "its form_version is {form_version}, and this gpu-track reads up to {FORM_VERSION}: use a newer gpu-track"
            ));
        }
        let plan: Self = serde_json::from_str(json).map_err(not_read)?;
        let damaged = |what: &str| Err(format!("it is damaged: {what}"));
        // `file` is the beginning of file names. A slash in it would lead out of the study's directory.
        if plan.variants.iter().any(|variant| variant.file != file_stem(&variant.file)) {
            return damaged("the name of a file has characters that no plan gives it");
        }
        // Below, an order is made for as many runs as the file says. So their number is checked first.
        let has_all_runs = plan.runs.checked_mul(plan.variants.len()) == Some(plan.order.len());
        if !has_all_runs || plan.warmup > MOST_RUNS {
            return damaged("it has another number of runs than it says, or too many to warm up");
        }
        // After this check, each run is of a variant that exists, and [`Self::with_runs`] continues the order.
        let Self { runs, warmup, shell, seed, .. } = plan;
        if plan.order != Self::new(plan.variants.clone(), runs, warmup, shell, seed).order {
            return damaged("the order of the runs is not that of its seed");
        }
        Ok(plan)
    }

    /// Names the first thing in which this plan differs from `begun`, the plan that a study was begun with. In the text, "its" is
    /// the begun study's: "its seed: 7, not 8" was begun with 7. `None`: it is the same study, perhaps with more runs.
    pub fn difference(&self, begun: &Self) -> Option<String> {
        let names = |plan: &Self| {
            plan.variants.iter().map(|variant| quote::word(&variant.name)).collect::<Vec<_>>().join(", ")
        };
        if names(self) != names(begun) {
            return Some(format!("its variants are {}, not {}", names(begun), names(self)));
        }
        // Both have the same names in the same order.
        let mut variants = self.variants.iter().zip(&begun.variants);
        if let Some(difference) = variants.find_map(|(variant, begun)| variant.difference(begun)) {
            return Some(difference);
        }
        let numbers =
            [("warm-up runs", self.warmup as u64, begun.warmup as u64), ("seed", self.seed, begun.seed)];
        if let Some((name, now, before)) = numbers.into_iter().find(|(_, now, before)| now != before) {
            return Some(format!("its {name}: {before}, not {now}"));
        }
        if self.shell != begun.shell {
            return Some(format!("its commands run {} a shell", if begun.shell { "in" } else { "without" }));
        }
        (self.runs < begun.runs)
            .then(|| format!("it has {} runs of each variant, not {}", begun.runs, self.runs))
    }
}

impl Variant {
    /// Says in what this variant differs from `begun`, the variant of the same name in the plan that a study was begun with.
    /// `None`: in nothing.
    fn difference(&self, begun: &Self) -> Option<String> {
        let name = quote::word(&self.name);
        if self.command != begun.command {
            let (before, now) = (quote::word(&begun.command), quote::word(&self.command));
            return Some(format!("its {name} is {before}, not {now}"));
        }
        (self.prepare != begun.prepare).then(|| format!("its {name} is prepared in another way"))
    }
}

/// Maximum length of the beginning of a file name, bytes. NAME_MAX is 255, and a number, an extension and the lock's name are added.
const LONGEST_STEM: usize = 100;

/// Makes the beginning of a file name from a name: without a slash, hidden characters, or what a shell would act on.
pub fn file_stem(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.,=+@~".contains(c);
    let mut stem = String::new();
    for c in name.chars().map(|c| if is_plain(c) { c } else { '_' }) {
        if stem.len() + c.len_utf8() > LONGEST_STEM {
            break;
        }
        // A name that begins with a dot is hidden, one with a hyphen looks like an option, and one with a tilde like a home.
        stem.push(if stem.is_empty() && "-.~".contains(c) { '_' } else { c });
    }
    if stem.is_empty() { "_".to_owned() } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(runs: usize, seed: u64) -> Plan {
        let variant = |name: &str| Variant {
            name: name.into(),
            command: format!("./{name}"),
            prepare: None,
            file: file_stem(name),
        };
        Plan::new(["a", "b", "c"].map(variant).into(), runs, 2, false, seed)
    }

    // Requirement: CMD-31
    #[test]
    fn each_round_has_every_variant_once_in_an_order_that_the_seed_determines() {
        let order = plan(20, 7).order;
        for (round, runs) in order.chunks(3).enumerate() {
            let mut variants: Vec<_> = runs.iter().map(|run| run.variant).collect();
            variants.sort_unstable();
            assert!(variants == [0, 1, 2] && runs.iter().all(|run| run.run == round + 1), "{runs:?}");
        }
        let firsts: std::collections::BTreeSet<_> = order.iter().step_by(3).map(|run| run.variant).collect();
        assert_eq!(firsts.len(), 3, "{order:?}");
        assert_eq!(plan(20, 7).order, order);
        assert_ne!(plan(20, 8).order, order);
        // More runs are added after those that there are.
        assert_eq!(plan(5, 7).with_runs(20).order, order);
        assert_eq!(plan(1, 7).warmup_order().len(), 6);
    }

    #[test]
    fn plan_is_read_back_and_a_damaged_one_is_refused() {
        let begun = plan(3, 7);
        assert_eq!(Plan::read(&begun.json()).unwrap(), begun);
        for (from, to, problem) in [
            ("\"form_version\": 1", "\"form_version\": 2", "its form_version is 2"),
            ("\"file\": \"a\"", "\"file\": \"../a\"", "it is damaged: the name of a file"),
            ("\"seed\": 7", "\"seed\": 8", "it is damaged: the order of the runs"),
            ("\"runs\": 3", "\"runs\": \"many\"", "it is no plan of a study: "),
            ("\"runs\": 3", "\"runs\": 18446744073709551615", "it is damaged: it has another number of runs"),
            (
                "\"warmup\": 2",
                "\"warmup\": 18446744073709551615",
                "it is damaged: it has another number of runs",
            ),
        ] {
            let json = begun.json();
            assert!(json.contains(from), "{json}");
            let error = Plan::read(&json.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(problem) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn another_plan_says_in_what_it_differs() {
        let begun = plan(3, 7);
        assert_eq!(plan(3, 7).difference(&begun), None);
        assert_eq!(plan(9, 7).difference(&begun), None);
        let changed = |change: fn(&mut Plan)| {
            let mut changed = plan(3, 7);
            change(&mut changed);
            changed.difference(&begun).unwrap()
        };
        assert_eq!(changed(|plan| drop(plan.variants.pop())), "its variants are a, b, c, not a, b");
        assert_eq!(changed(|plan| plan.variants[1].command = "./b -v".into()), "its b is ./b, not './b -v'");
        assert_eq!(
            changed(|plan| plan.variants[2].prepare = Some("x".into())),
            "its c is prepared in another way"
        );
        assert_eq!(changed(|plan| plan.warmup = 0), "its warm-up runs: 2, not 0");
        assert_eq!(changed(|plan| plan.seed = 8), "its seed: 7, not 8");
        assert_eq!(changed(|plan| plan.shell = true), "its commands run without a shell");
        assert_eq!(changed(|plan| plan.runs = 2), "it has 3 runs of each variant, not 2");
    }

    #[test]
    fn names_of_files_have_nothing_that_a_shell_or_a_terminal_acts_on() {
        let stems = ["mlp-onehot", "a/b", "../x", "-rf", "", "α β\n\x1b[31m$(x)", ".a.1"].map(file_stem);
        assert_eq!(stems, ["mlp-onehot", "a_b", "_._x", "_rf", "_", "α_β___31m__x_", "_a.1"]);
        assert_eq!(file_stem(&"é".repeat(200)).len(), LONGEST_STEM);
    }
}
