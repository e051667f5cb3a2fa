//! Contention: how many CPU cores programs outside of the run kept busy meanwhile, and whether the run had to wait for them.

use super::time_spent;
use crate::document::{Block, Section};
use crate::figures::short;
use crate::model::report::{Contention, Report};

/// If others kept fewer cores busy, that is only the machine's background work.
const LEAST_CORES: f64 = 0.1;

/// Makes the section about others. It is empty if they kept fewer than [`LEAST_CORES`] busy, or if it is not known how many.
pub(super) fn contention(contention: &Contention) -> Section {
    let section = Section::new("Contention");
    let Some(others) = others(contention).filter(|_| contention.others_cores >= Some(LEAST_CORES)) else {
        return section;
    };
    let stolen = contention.stolen_cores.filter(|cores| *cores > 0.0);
    let waited = match contention.is_contended {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    };
    section
        .text("Others had", others)
        .text("Taken by a hypervisor", stolen.map(|cores| format!("{} cores", short(cores))))
        .text(
            "Threads that waited for a core",
            contention.waiting_threads.map(|n| format!("{} on average", short(n))),
        )
        .text("The run waited for others", waited.to_owned())
        .text("Not known", contention.reason.clone())
}

/// Makes the row below the one of the cores that the run used. `None`: as far as is known, others did not keep it from using more.
pub(super) fn row(report: &Report) -> Option<Block> {
    let contention = Some(&report.contention).filter(|contention| contention.is_contended == Some(true))?;
    if time_spent::says_all_of_cores(report) {
        return None;
    }
    Some(Block::text("", format!("other programs had {}", others(contention)?)))
}

/// Makes the text of how many cores others kept busy: `1.30 of 2 cores`. `None`: it is not known.
fn others(contention: &Contention) -> Option<String> {
    let (had, all) = (short(contention.others_cores?), contention.allowed_cores?);
    Some(format!("{had} of {all} core{}", if all == 1 { "" } else { "s" }))
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures::full;

    use super::*;
    use crate::model::style::Style;
    use crate::text::text;

    fn texts(is_contended: Option<bool>) -> [String; 2] {
        let mut report = full();
        report.time_spent = None;
        report.contention = Contention {
            is_contended,
            allowed_cores: Some(2),
            others_cores: Some(1.3),
            stolen_cores: Some(0.2),
            waiting_threads: is_contended.map(|_| 0.97),
            reason: is_contended.is_none().then(|| "no schedstat".into()),
        };
        report.hints.cpus.as_mut().unwrap().is_lower_bound = report.contention.may_be_contended();
        report.hints.cpus.as_mut().unwrap().is_fitting = false;
        [false, true].map(|full| text(&report, &Style { full, ..Style::default() }))
    }

    // Requirement: HINT-5
    #[test]
    fn summary_says_what_others_had_and_asks_for_no_cores_then() {
        let [summary, full] = texts(Some(true));
        assert!(summary.contains("\n                 other programs had 1.30 of 2 cores\n"), "{summary}");
        assert!(!summary.contains("--cpus-per-task"), "{summary}");
        assert!(summary.contains("(alone it may use more cores, and take less time)"), "{summary}");
        for line in [
            "   Others had: 1.30 of 2 cores\n",
            "   Taken by a hypervisor: 0.20 cores\n",
            "   Threads that waited for a core: 0.97 on average\n",
            "   The run waited for others: yes\n",
            "   CPUs: at least 4, from ",
            "83.2 s; alone it may take less\n",
        ] {
            assert!(full.contains(line), "{line:?}: {full}");
        }
        assert!(!full.contains("Nextflow: cpus") && !full.contains("Snakemake: threads"), "{full}");
    }

    // Requirement: HINT-5
    #[test]
    fn summary_is_silent_of_others_that_it_did_not_wait_for() {
        let [summary, full] = texts(Some(false));
        assert!(!summary.contains("other programs had") && !summary.contains("alone"), "{summary}");
        assert!(summary.contains("--cpus-per-task=4"), "{summary}");
        assert!(full.contains("   The run waited for others: no\n"), "{full}");
    }

    // Requirement: HINT-5
    #[test]
    fn doubt_is_in_the_full_text_alone() {
        let [summary, full] = texts(None);
        assert!(!summary.contains("other programs had"), "{summary}");
        assert!(
            full.contains("   The run waited for others: not known\n   Not known: no schedstat\n"),
            "{full}"
        );
    }
}
