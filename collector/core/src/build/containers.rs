//! Finds out which containers belong to which calls of the tree, and what each used.
//!
//! A name, an id or a project of docker compose makes it certain. Otherwise the containers of the call's image that were created
//! while its client ran are matched: those of other users of the daemon can be among them.

use std::collections::{BTreeMap, BTreeSet};

use super::Inputs;
use crate::model::containers::{ContainerSeen, MOST_CONTAINERS, MissingFigures, plain_image};
use crate::model::report::{ContainerCertainty, ContainerUsage};
use crate::model::sorting::{InOrder, Sorting};
use crate::run::elsewhere::ContainerPlace;
use crate::run::elsewhere::containers::{Act, ContainerCall};

/// How far a daemon's event may be outside of its call, nanoseconds: its time is converted to another clock. A client asks for a container
/// 20 ms after its start at the earliest. So the container of a call is not taken for that of one just before.
const TOLERANCE_NS: u64 = 5_000_000;

/// Why the containers of a build or a service are not known. They have no name that a user could give to another command.
pub(super) const OF_NO_NAME: &str = "builds and services are not followed";

/// The containers of a run, and the calls of which none is known.
pub(super) struct Found {
    /// The containers, in the order of their starts.
    pub(super) list: Vec<ContainerUsage>,
    /// For each call, where the figures of its containers are.
    pub(super) places: Vec<ContainerPlace>,
}

/// The calls that a container can be of.
struct Claim<'a> {
    call: &'a ContainerCall,
    certainty: ContainerCertainty,
    /// How many calls and containers could be matched with each other.
    among: (usize, usize),
}

/// Finds the containers of the run.
pub(super) fn containers(inputs: &Inputs) -> Found {
    let calls: Vec<&ContainerCall> = inputs.run.totals.elsewhere.container_calls().collect();
    let mut claims: BTreeMap<&str, Claim> = BTreeMap::new();
    let mut unseen: Vec<Option<String>> = calls.iter().map(|call| why_not_followed(inputs, call)).collect();
    // Certain ones first, so that no other call is matched with them.
    let mut matched: Vec<(usize, BTreeSet<&str>)> = Vec::new();
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| unseen[*at].is_none()).collect::<Vec<_>>() {
        let named = inputs.run.containers.of_daemon(call.daemon).filter(|seen| is_named_by(seen, call));
        let named: Vec<&ContainerSeen> = named.collect();
        for seen in &named {
            let claim = Claim { call, certainty: ContainerCertainty::Certain, among: (1, 1) };
            let known = claims.entry(&seen.id).or_insert(claim);
            // What it used since its creation says more than what it used during a `docker exec`.
            if known.call.act == Act::Exec && call.act != Act::Exec {
                known.call = call;
            }
        }
        if named.is_empty() {
            matched.push((at, BTreeSet::new()));
        }
    }
    for (at, candidates) in &mut matched {
        let call = calls[*at];
        let like = inputs.run.containers.of_daemon(call.daemon).filter(|seen| is_like(seen, call));
        candidates.extend(like.map(|seen| seen.id.as_str()).filter(|id| is_free(&claims, id)));
        if candidates.is_empty() {
            unseen[*at] = Some(if inputs.run.containers.are_full() {
                format!("the daemon told of more than {MOST_CONTAINERS} containers")
            } else {
                "the daemon told of no such container".to_owned()
            });
        }
    }
    let groups = groups(&matched);
    for (at, candidates) in &matched {
        let is_of = |(_, all): &&Group| candidates.first().is_some_and(|id| all.contains(id));
        let Some((calls_of_group, all)) = groups.iter().find(is_of) else { continue };
        let projects = all.iter().filter_map(|id| Some(&inputs.run.containers.get(id)?.compose.as_ref()?.0));
        // docker compose starts several containers, all of one project.
        let is_one_project = calls[*at].act == Act::Compose && projects.ordered_set().len() == 1;
        let among = (*calls_of_group, if is_one_project { 1 } else { all.len() });
        for id in candidates {
            if is_free(&claims, id) {
                claims.insert(id, Claim { call: calls[*at], certainty: ContainerCertainty::Matched, among });
            }
        }
    }
    let of_proxy = inputs.run.containers.in_tree();
    let asked = of_proxy.iter().map(|(id, client)| (id.as_str(), ContainerCall::of_client(client)));
    let asked = asked.ordered_map();
    for (id, call) in &asked {
        let call = if is_free(&claims, id) { call } else { claims[id].call };
        claims.insert(id, Claim { call, certainty: ContainerCertainty::Certain, among: (1, 1) });
    }
    let places = calls.iter().zip(unseen).enumerate().map(|(at, (call, unseen))| {
        let own = claims.iter().filter(|(_, claim)| std::ptr::eq(claim.call, *call)).map(|(id, _)| *id);
        // Containers that match several calls are claimed by one of them.
        let of_group =
            matched.iter().filter(|(of, _)| *of == at).flat_map(|(_, candidates)| candidates.iter().copied());
        let mut all = own.chain(of_group).peekable();
        match unseen {
            Some(reason) => ContainerPlace::Unseen(reason),
            None if all.peek().is_some() && all.all(|id| is_in_tree(inputs, id)) => ContainerPlace::InTree,
            None => ContainerPlace::Listed,
        }
    });
    let places = places.collect();
    let seen = inputs.run.containers.all().filter_map(|seen| Some((seen, claims.get(seen.id.as_str())?)));
    let mut list: Vec<ContainerUsage> = seen.map(|(seen, claim)| usage(inputs, seen, claim)).collect();
    list.order_by(|a, b| f64::total_cmp(&a.start_s.unwrap_or(f64::MAX), &b.start_s.unwrap_or(f64::MAX)));
    Found { list, places }
}

/// Whether a call that has started this container can claim it: of such a container all counts, and not only a `docker exec` in it.
fn is_free(claims: &BTreeMap<&str, Claim>, id: &str) -> bool {
    claims.get(id).is_none_or(|claim| claim.call.act == Act::Exec)
}

/// How many calls could be matched with each other's containers, and these.
type Group<'a> = (usize, BTreeSet<&'a str>);

/// Puts calls with a candidate in common into one group. `matched`: the candidates of each call.
fn groups<'a>(matched: &[(usize, BTreeSet<&'a str>)]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for (_, candidates) in matched.iter().filter(|(_, candidates)| !candidates.is_empty()) {
        let (common, mut others): (Vec<Group>, Vec<Group>) =
            groups.into_iter().partition(|(_, all)| !all.is_disjoint(candidates));
        let (mut calls, mut all) = (1, candidates.clone());
        for (more, ids) in common {
            calls += more;
            all.extend(ids);
        }
        others.push((calls, all));
        groups = others;
    }
    groups
}

/// Why the containers of a call can't be known. `None`: they can.
fn why_not_followed(inputs: &Inputs, call: &ContainerCall) -> Option<String> {
    if call.act == Act::Other {
        return Some(OF_NO_NAME.to_owned());
    }
    let socket = match inputs.run.containers.daemon(call.daemon) {
        Some(Ok(socket)) => socket,
        Some(Err(reason)) => return Some(reason.clone()),
        None => return Some("the daemon did not answer".to_owned()),
    };
    let is_other = call.daemon_at.as_ref().is_some_and(|at| at.strip_prefix("unix://") != Some(socket));
    is_other.then(|| "the call names another daemon or host".to_owned())
}

/// Whether a time is within the life of the call's client, CLOCK_MONOTONIC nanoseconds.
fn is_during(call: &ContainerCall, at_ns: Option<u64>) -> bool {
    let end_ns = call.end_ns.map_or(u64::MAX, |end_ns| end_ns.saturating_add(TOLERANCE_NS));
    at_ns.is_some_and(|at_ns| (call.start_ns.saturating_sub(TOLERANCE_NS)..=end_ns).contains(&at_ns))
}

/// Whether the arguments of the call name this container, and what the call does was done to it meanwhile.
fn is_named_by(seen: &ContainerSeen, call: &ContainerCall) -> bool {
    let is_target = || call.targets.iter().any(|target| seen.is_called(target));
    let is_of_project = || match (&seen.compose, &call.project) {
        (Some((project, _)), Some(wanted)) => project == wanted,
        _ => false,
    };
    let is_of_service = || seen.compose.as_ref().is_some_and(|(_, service)| call.targets.contains(service));
    match call.act {
        Act::Run => {
            let is_named = call.name.as_ref() == Some(&seen.name)
                || (call.cidfile.is_some() && call.cidfile == seen.cidfile)
                || (call.is_compose && is_of_project() && is_of_service());
            is_named && is_during(call, seen.created_ns)
        }
        // It may have been started before, too, and again after the call.
        Act::Start => is_target() && has_started_during(seen, call),
        Act::Exec => {
            let began_ns = seen.execs.as_ref().map(|execs| execs.began_ns);
            is_target() && (is_during(call, began_ns) || has_later_exec(seen, call))
        }
        Act::Compose => is_of_project() && is_during(call, seen.started_ns),
        Act::Other => false,
    }
}

/// Whether a start of the container can be that of the call. Of its starts, the first and the last are known.
fn has_started_during(seen: &ContainerSeen, call: &ContainerCall) -> bool {
    let was_between = Option::zip(seen.started_ns, seen.last_started_ns)
        .is_some_and(|(first_ns, last_ns)| first_ns <= call.start_ns && last_ns >= call.start_ns);
    was_between || is_during(call, seen.started_ns) || is_during(call, seen.last_started_ns)
}

/// Whether the call can be one of several that executed commands in the container, of which not the first one.
fn has_later_exec(seen: &ContainerSeen, call: &ContainerCall) -> bool {
    seen.execs.as_ref().is_some_and(|execs| execs.began > 1 && execs.began_ns <= call.start_ns)
}

/// Whether this container, which no name ties to the call, was created for the call's image or by docker compose meanwhile.
fn is_like(seen: &ContainerSeen, call: &ContainerCall) -> bool {
    match call.act {
        // A name or file that did not lead to a container: it is none of those that were created.
        Act::Run if call.name.is_some() => false,
        Act::Run => {
            let image = call.targets.first();
            let is_image = match (&seen.compose, image) {
                (Some((_, service)), Some(target)) if call.is_compose => service == target,
                // The arguments were cut off before the image.
                (_, None) => !call.is_compose,
                (_, Some(image)) => plain_image(&seen.image) == plain_image(image),
            };
            is_image && is_during(call, seen.created_ns)
        }
        Act::Compose => call.project.is_none() && seen.compose.is_some() && is_during(call, seen.started_ns),
        Act::Start | Act::Exec | Act::Other => false,
    }
}

/// Whether a container's processes are in the tree: the proxy has edited it, and some process came from a container. They join the run.
fn is_in_tree(inputs: &Inputs, id: &str) -> bool {
    inputs.run.totals.coverage.joined > 0 && inputs.run.containers.in_tree().contains_key(id)
}

/// How many containers the proxy has edited whose CPU time is known, and that, seconds.
pub(super) fn edited_cpu_s(inputs: &Inputs) -> (usize, f64) {
    let edited =
        inputs.run.containers.in_tree().keys().filter_map(|id| inputs.run.containers.get(id)?.cpu_us);
    edited.fold((0, 0.0), |(count, sum_s), cpu_us| (count + 1, sum_s + cpu_us as f64 / 1e6))
}

/// What a container used, for the report.
fn usage(inputs: &Inputs, seen: &ContainerSeen, claim: &Claim) -> ContainerUsage {
    // A container that the tree has started has figures of its own, which contain those of the command in it.
    let of_exec = seen.execs.as_ref().filter(|_| claim.call.act == Act::Exec);
    // The daemon's health checks and other users' commands count, too, and what the container did between them.
    let several = of_exec.map(|execs| execs.began).filter(|began| *began > 1);
    let (started_ns, ended_ns) = match of_exec {
        Some(execs) => (Some(execs.began_ns), execs.ended_ns),
        None => (seen.started_ns, seen.ended_ns),
    };
    let run_start_ns = inputs.run.start_ns;
    let cpu_us = match of_exec {
        Some(execs) => Option::zip(execs.before_us, execs.after_us)
            .map(|(before, after)| after.saturating_sub(before))
            .filter(|_| several.is_none()),
        None => seen.cpu_us,
    };
    let exit_code = match of_exec {
        Some(execs) => execs.exit_code.filter(|_| execs.began == 1),
        None => seen.exit_code,
    };
    // The daemon tells of the start of a short container when that has ended.
    let wall_ns = started_ns.and_then(|start_ns| ended_ns.unwrap_or(inputs.end.at_ns).checked_sub(start_ns));
    let reasons = [
        of_exec.filter(|_| several.is_none()).map(|_| {
            "docker exec: the CPU time is what the whole container used meanwhile".to_owned()
        }),
        several.map(|began| {
            format!("{began} commands were executed there, some perhaps by others or as health checks: the CPU time of one is unknown")
        }),
        seen.missing.map(|missing| missing_in_words(missing).to_owned()),
        (of_exec.is_none() && started_ns.is_none()).then(|| "it was not seen to start".to_owned()),
        (started_ns.is_some() && ended_ns.is_none()).then(|| "it still ran at the end".to_owned()),
        (started_ns.is_some() && wall_ns.is_none())
            .then(|| "it ended before the daemon told of its start".to_owned()),
        (seen.is_lower_bound && seen.missing.is_none()).then(|| "lower bound: its end was missed".to_owned()),
        among_in_words(claim),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    ContainerUsage {
        client: claim.call.program.clone(),
        name: seen.name.clone(),
        id: seen.id.clone(),
        image: seen.image.clone(),
        certainty: claim.certainty,
        in_tree: is_in_tree(inputs, &seen.id),
        start_s: started_ns.map(|at_ns| (i128::from(at_ns) - i128::from(run_start_ns)) as f64 / 1e9),
        wall_s: wall_ns.map(|wall_ns| wall_ns as f64 / 1e9),
        cpu_s: cpu_us.map(|us| us as f64 / 1e6),
        peak_memory_bytes: seen.peak_bytes.filter(|_| of_exec.is_none()),
        exit_code,
        // One may have been killed after the last reading.
        oom_killed: seen.is_oom_killed.filter(|is_killed| *is_killed || !seen.is_lower_bound),
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        node: None,
    }
}

fn missing_in_words(missing: MissingFigures) -> &'static str {
    match missing {
        MissingFigures::TooShort => "its cgroup was gone before it was read",
        MissingFigures::NoCgroup => "no cgroup that can be read here has its id",
    }
}

/// Says that a container may be another call's, or another user's. `None`: it is the only one for the only call.
fn among_in_words(claim: &Claim) -> Option<String> {
    let (calls, containers) = claim.among;
    let is_full = containers >= MOST_CONTAINERS;
    (claim.among != (1, 1) || is_full).then(|| {
        let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
        let containers =
            if containers == 1 { "1 container".to_owned() } else { format!("{containers} containers") };
        format!("{calls} and {containers} match")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::nulls::report_of;
    use crate::model::containers::{
        ContainerDaemon, ContainerExecs, ContainerNote, ContainerWish, NotTracked,
    };
    use crate::model::observation::Observation;
    use crate::model::report::Report;
    use crate::run::RunState;
    use crate::run::elsewhere::ClientCall;
    use crate::run::random_trees::random_runs;

    const S: u64 = 1_000_000_000;
    const SOCKET: &str = "/run/d.sock";

    /// A container with this first digit of its id. It was created, started and ended at these seconds of the run.
    fn seen(run: &RunState, digit: &str, image: &str, times_s: [u64; 3]) -> ContainerSeen {
        let [created_ns, started_ns, ended_ns] = times_s.map(|at_s| Some(run.start_ns + at_s * S));
        ContainerSeen {
            daemon: ContainerDaemon::Docker,
            id: digit.repeat(64),
            name: format!("name_{digit}"),
            image: image.to_owned(),
            created_ns,
            started_ns,
            ended_ns,
            exit_code: Some(3),
            cpu_us: Some(1_500_000),
            peak_bytes: Some(4096),
            ..Default::default()
        }
    }

    /// The report of a run with these calls, each with the seconds of the run between which its client lived, and these containers.
    fn report(calls: &[(&str, u64, u64)], make: impl Fn(&RunState) -> Vec<ContainerSeen>) -> Report {
        let (mut run, at_ns) = random_runs(1).next().unwrap();
        run.totals.elsewhere = Default::default();
        for (line, start_s, end_s) in calls {
            let args = line.split(' ').map(str::to_owned).collect();
            let [start_ns, end_ns] = [start_s, end_s].map(|at_s| run.start_ns + at_s * S);
            run.totals.elsewhere.add(&ClientCall { args, started_by: Vec::new() }, (start_ns, Some(end_ns)));
        }
        let daemon = ContainerDaemon::Docker;
        run.apply(at_ns, &Observation::ContainerDaemon { daemon, state: Ok(SOCKET.to_owned()) });
        let all = make(&run);
        for seen in &all {
            run.apply(at_ns, &Observation::Container(Box::new(seen.clone())));
        }
        let report = report_of(&run, at_ns);
        // Only these are followed in a run.
        let wishes: Vec<ContainerWish> =
            run.totals.elsewhere.container_calls().flat_map(ContainerCall::wanted).collect();
        let is_listed = |seen: &&ContainerSeen| report.containers.iter().any(|one| one.id == seen.id);
        for seen in all.iter().filter(is_listed) {
            assert!(seen.cidfile.is_some() || wishes.iter().any(|wish| wish.means(seen)), "{}", seen.name);
        }
        report
    }

    /// The containers of a report: `name certainty`, and the reason if there is one.
    fn listed(report: &Report) -> Vec<String> {
        let text = |one: &ContainerUsage| {
            let certainty = if one.certainty == ContainerCertainty::Certain { "certain" } else { "matched" };
            let reason = one.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{} {certainty}{reason}", one.name)
        };
        report.containers.iter().map(text).collect()
    }

    // Requirement: SEE-132
    #[test]
    fn names_files_and_ids_are_certain_and_image_and_time_match() {
        let report = report(
            &[
                ("docker run --name name_a i", 1, 9),
                ("docker run --cidfile /c i", 1, 9),
                ("docker run i:latest", 1, 9),
                ("docker start cccc name_d", 1, 9),
            ],
            |run| {
                let by_file = ContainerSeen { cidfile: Some("/c".into()), ..seen(run, "b", "i", [2, 4, 6]) };
                let started = ["c", "d"]
                    .map(|digit| ContainerSeen { created_ns: None, ..seen(run, digit, "j", [0, 5, 6]) });
                let others = [
                    ("e", "docker.io/library/i", [2, 6, 7]),
                    ("1", "i", [20, 21, 22]),
                    ("2", "other", [2, 6, 7]),
                ];
                let others = others.map(|(digit, image, times)| seen(run, digit, image, times));
                [vec![seen(run, "a", "i", [2, 3, 6]), by_file], started.into(), others.into()].concat()
            },
        );
        let all = ["name_a certain", "name_b certain", "name_c certain", "name_d certain", "name_e matched"];
        assert_eq!(listed(&report), all);
        let first = &report.containers[0];
        assert_eq!((first.start_s, first.wall_s, first.cpu_s), (Some(3.0), Some(3.0), Some(1.5)));
        assert_eq!((first.peak_memory_bytes, first.exit_code), (Some(4096), Some(3)));
        assert!(report.coverage.elsewhere.iter().all(|entry| entry.followed == entry.count));
        assert!(!report.warnings.iter().any(|warning| warning.text.contains("containers of")));
    }

    // Requirement: SEE-132
    #[test]
    fn containers_that_can_be_of_several_calls_or_users_are_marked() {
        let report = report(&[("docker run i", 1, 9), ("docker run i", 1, 9)], |run| {
            ["a", "b", "c"].map(|digit| seen(run, digit, "i", [2, 3, 4])).into()
        });
        assert_eq!(
            listed(&report),
            ["a", "b", "c"].map(|digit| format!("name_{digit} matched: 2 calls and 3 containers match"))
        );
    }

    // Requirement: SEE-140
    #[test]
    fn container_that_the_proxy_has_edited_is_in_the_tree_and_that_of_a_library_has_a_line() {
        let with = |joined_with_cpu_us: (u64, u64),
                    calls: &[(&str, u64, u64)],
                    notes: &dyn Fn(&RunState) -> Vec<ContainerNote>| {
            let (mut run, at_ns) = random_runs(1).next().unwrap();
            run.totals.elsewhere = Default::default();
            for (line, start_s, end_s) in calls {
                let args = line.split(' ').map(str::to_owned).collect();
                let [start_ns, end_ns] = [start_s, end_s].map(|at_s| run.start_ns + at_s * S);
                let call = ClientCall { args, started_by: Vec::new() };
                run.totals.elsewhere.add(&call, (start_ns, Some(end_ns)));
            }
            let daemon = ContainerDaemon::Docker;
            run.apply(at_ns, &Observation::ContainerDaemon { daemon, state: Ok(SOCKET.to_owned()) });
            let notes = notes(&run);
            run.apply(at_ns, &Observation::ContainerNotes { read_bytes: 9, notes: notes.clone() });
            for digit in ["a", "b"] {
                let seen = seen(&run, digit, "i", [2, 3, 4]);
                run.apply(at_ns, &Observation::Container(Box::new(seen)));
            }
            assert_eq!(run.containers.notes_bytes(), 9);
            let is_wanted = |note: &ContainerNote| match note {
                ContainerNote::Tracked { id, .. } => {
                    run.wanted_containers().wishes.contains(&(daemon, ContainerWish::Named(id.clone())))
                }
                ContainerNote::NotTracked(_) => true,
            };
            assert!(notes.iter().all(is_wanted));
            (run.totals.coverage.joined, run.totals.unattributed_us) = joined_with_cpu_us;
            report_of(&run, at_ns)
        };
        let of = |calls: &[(&str, u64, u64)], notes: &dyn Fn(&RunState) -> Vec<ContainerNote>| {
            with((1, 3_000_000), calls, notes)
        };
        let tracked = |digit: &str, client: &str| ContainerNote::Tracked {
            id: digit.repeat(64),
            client: client.to_owned(),
        };
        let both = of(&[("docker run i", 1, 9), ("docker run i", 1, 9)], &|_| {
            vec![tracked("a", "docker"), tracked("b", "docker")]
        });
        assert_eq!(listed(&both), ["name_a certain", "name_b certain"]);
        assert!(both.containers.iter().all(|container| container.in_tree));
        let elsewhere = &both.coverage.elsewhere[0];
        assert_eq!((elsewhere.count, elsewhere.followed, elsewhere.in_tree), (2, 2, 2));
        let of_library =
            of(&[], &|_| vec![tracked("b", "python3"), ContainerNote::NotTracked(NotTracked::Kept)]);
        assert_eq!(listed(&of_library), ["name_b certain"]);
        assert_eq!(of_library.containers[0].client, "python3");
        let warning =
            of_library.warnings.iter().find(|warning| warning.text.starts_with("--containers: 1 container"));
        assert!(warning.unwrap().text.contains("1 without --rm"));
        // The other call's container is one of several that its image and time match.
        let one = of(&[("docker run i", 1, 9), ("docker run i", 1, 9)], &|_| vec![tracked("a", "docker")]);
        assert_eq!(one.containers.iter().filter(|container| container.in_tree).count(), 1);
        assert!(one.coverage.elsewhere[0].in_tree < 2);
        // Static programs are not seen. If none of a run's is, its containers are not in the tree.
        let calls = [("docker run i", 1, 9), ("docker run i", 1, 9)];
        let notes = |_: &RunState| vec![tracked("a", "docker"), tracked("b", "docker")];
        let text = "used 3.0 s of CPU time";
        let warns = |report: &Report| report.warnings.iter().any(|warning| warning.text.contains(text));
        let unseen = with((0, 0), &calls, &notes);
        assert!(unseen.containers.iter().all(|container| !container.in_tree) && warns(&unseen));
        assert_eq!(unseen.coverage.elsewhere[0].in_tree, 0);
        let in_part = with((1, 0), &calls, &notes);
        assert!(in_part.containers.iter().all(|container| container.in_tree) && warns(&in_part));
        assert!(!warns(&both));
    }

    // Requirement: SEE-131
    #[test]
    fn call_whose_container_is_not_known_is_in_the_warning_with_the_reason() {
        for (line, reason) in [
            ("docker -H tcp://h run i", "names another daemon or host"),
            ("docker --context prod run i", "names another daemon or host"),
            ("docker run --name other i", "told of no such container"),
            ("docker run j", "told of no such container"),
            ("docker exec name_a ls", "told of no such container"),
            ("docker build .", OF_NO_NAME),
            ("podman-remote run i", "the daemon did not answer"),
        ] {
            let report = report(&[(line, 1, 9)], |run| vec![seen(run, "a", "i", [2, 3, 4])]);
            assert_eq!(listed(&report), [] as [&str; 0], "{line}");
            let warning =
                report.warnings.iter().find(|warning| warning.text.contains("containers of")).unwrap();
            assert!(
                warning.text.contains(reason) && warning.text.contains("gpu-track-run inside"),
                "{}",
                warning.text
            );
            // It names the container by which the other way goes.
            let has_name = line.starts_with("docker") && !line.contains("build");
            assert_eq!(warning.text.contains("inspect"), has_name, "{}", warning.text);
        }
        let own_socket = report(&[("docker -H unix:///run/d.sock run i", 1, 9)], |run| {
            vec![seen(run, "a", "i", [2, 3, 4])]
        });
        assert_eq!(listed(&own_socket), ["name_a matched"]);
    }

    // Requirement: SEE-132
    #[test]
    fn each_start_of_a_container_by_name_is_its_calls() {
        let calls =
            [("docker start name_a", 1, 2), ("docker restart name_a", 4, 5), ("docker start name_a", 7, 8)];
        let of = |last_s: u64| {
            report(&calls, |run| {
                vec![ContainerSeen {
                    last_started_ns: Some(run.start_ns + last_s * S),
                    ..seen(run, "a", "i", [1, 1, 9])
                }]
            })
        };
        let missing =
            |report: &Report| report.warnings.iter().any(|one| one.text.contains("no such container"));
        let [all, first] = [of(7), of(1)];
        assert_eq!((listed(&all), missing(&all)), (vec!["name_a certain".to_owned()], false));
        assert!(missing(&first), "the later calls have started nothing that the daemon told of");
    }

    // Requirement: SEE-132
    #[test]
    fn kill_after_the_last_reading_is_unknown() {
        let of = |is_lower_bound: bool, is_oom_killed: Option<bool>| {
            let run = report(&[("docker run --name name_a i", 1, 9)], |run| {
                vec![ContainerSeen { is_lower_bound, is_oom_killed, ..seen(run, "a", "i", [2, 3, 4]) }]
            });
            run.containers[0].oom_killed
        };
        assert_eq!(
            [of(false, Some(false)), of(true, Some(false)), of(true, Some(true))],
            [Some(false), None, Some(true)]
        );
        assert_eq!(of(false, None), None);
    }

    // Requirement: SEE-132
    #[test]
    fn exec_has_the_difference_and_no_peak_unless_the_container_is_of_the_run() {
        let executed = |run: &RunState| {
            let execs = ContainerExecs {
                began_ns: run.start_ns + 2 * S,
                ended_ns: Some(run.start_ns + 4 * S),
                began: 1,
                ended: 1,
                exit_code: Some(7),
                before_us: Some(1_000_000),
                after_us: Some(1_250_000),
            };
            ContainerSeen { execs: Some(execs), ..seen(run, "a", "i", [1, 1, 5]) }
        };
        let older = |run: &RunState| {
            vec![ContainerSeen { created_ns: None, started_ns: None, ended_ns: None, ..executed(run) }]
        };
        let old = report(&[("docker exec name_a ls", 1, 9)], older);
        let one = &old.containers[0];
        assert_eq!((one.cpu_s, one.peak_memory_bytes, one.exit_code), (Some(0.25), None, Some(7)));
        assert_eq!((one.start_s, one.wall_s), (Some(2.0), Some(2.0)));
        assert!(one.reason.as_ref().unwrap().starts_with("docker exec: "));
        let own =
            report(&[("docker run -d i", 1, 2), ("docker exec name_a ls", 1, 9)], |run| vec![executed(run)]);
        assert_eq!((own.containers.len(), own.containers[0].cpu_s), (1, Some(1.5)));
        assert_eq!(own.containers[0].reason, None);
        // Somebody else started it meanwhile, or executed something there, too.
        let others = report(&[("docker exec name_a ls", 1, 9)], |run| vec![executed(run)]);
        assert_eq!((others.containers[0].cpu_s, others.containers[0].peak_memory_bytes), (Some(0.25), None));
        let twice = |run: &RunState| {
            let mut seen = executed(run);
            seen.execs.as_mut().unwrap().began = 2;
            vec![seen]
        };
        let one = &report(&[("docker exec name_a ls", 1, 9)], twice).containers[0];
        assert_eq!((one.cpu_s, one.exit_code), (None, None));
        assert!(one.reason.as_ref().unwrap().contains("the CPU time of one is unknown"));
    }

    // Requirement: SEE-132
    #[test]
    fn project_of_compose_makes_its_containers_certain() {
        let of = |run: &RunState, digit: &str, project: &str| {
            let compose = Some((project.to_owned(), "web".to_owned()));
            ContainerSeen { compose, ..seen(run, digit, "i", [2, 3, 4]) }
        };
        let both = |run: &RunState| {
            vec![of(run, "a", "shop"), of(run, "b", "other"), seen(run, "c", "i", [2, 3, 4])]
        };
        assert_eq!(listed(&report(&[("docker compose -p shop up", 1, 9)], both)), ["name_a certain"]);
        let one = |run: &RunState| ["a", "b"].map(|digit| of(run, digit, "shop")).into();
        assert_eq!(
            listed(&report(&[("docker compose up", 1, 9)], one)),
            ["name_a matched", "name_b matched"]
        );
        let by_time = listed(&report(&[("docker compose up", 1, 9)], both));
        assert_eq!(
            by_time,
            ["a", "b"].map(|digit| format!("name_{digit} matched: 1 call and 2 containers match"))
        );
        assert_eq!(listed(&report(&[("docker compose -p shop run web ls", 1, 9)], both)), ["name_a certain"]);
    }

    // Requirement: SEE-133
    #[test]
    fn missing_figures_have_a_reason() {
        let missing = |missing, is_lower_bound, started: bool| {
            let report = report(&[("docker run i", 1, 9)], |run| {
                let seen = seen(run, "a", "i", [2, 3, 4]);
                vec![ContainerSeen {
                    missing,
                    is_lower_bound,
                    started_ns: seen.started_ns.filter(|_| started),
                    ..seen
                }]
            });
            listed(&report).join(" ")
        };
        assert!(
            missing(Some(MissingFigures::TooShort), true, true)
                .ends_with("its cgroup was gone before it was read")
        );
        assert!(missing(Some(MissingFigures::NoCgroup), false, true).ends_with("has its id"));
        assert!(missing(None, true, true).ends_with("lower bound: its end was missed"));
        assert!(missing(None, false, false).ends_with("it was not seen to start"));
    }
}
