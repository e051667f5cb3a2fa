//! Programs over exec: names, images, and programs that write no record.

use super::*;

#[test]
fn exec_chain_is_one_process_with_its_last_name() {
    let mut run = Run::new();
    for name in ["env", "nice", "job"] {
        run.start_as(102, MAIN, 77, MIB_KIB, name);
    }
    run.exit(102, 5, 0).reaped(MAIN, 102, 6);
    assert_eq!(run.tree.counts().created, 2);
    assert_eq!(&*summary_of(&run.end(), 102).name.command, "job");
}

#[test]
fn fork_children_share_name_and_group_until_exec() {
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, MIB_KIB, "make").fork(103, 102, MIB_KIB).fork(104, 103, MIB_KIB);
    let group = run.tree.get(run.id(102)).unwrap().program.group;
    assert_eq!(run.tree.group(group).unwrap().members, [run.id(102), run.id(103), run.id(104)]);
    run.start_as(104, 103, 0, MIB_KIB, "cc");
    assert_eq!(run.tree.group(group).unwrap().members, [run.id(102), run.id(103)]);
    let summaries = run.end();
    assert_eq!(
        (&*summary_of(&summaries, 103).name.command, &*summary_of(&summaries, 104).name.command),
        ("make", "cc")
    );
    assert_eq!((summary_of(&summaries, 104).parent_pid, summaries.len()), (Some(103), 4));
}

#[test]
fn fork_child_running_static_program_is_no_copy() {
    let mut run = Run::new();
    run.fork(102, MAIN, 100 * MIB_KIB).execs(102);
    let id = run.id(102);
    let exec_ns = run.tree.get(id).unwrap().program_start_ns();
    assert!(unread(&run.tree, exec_ns - 1).is_empty(), "it may be about to report");
    assert_eq!(unread(&run.tree, exec_ns), [id]);
    run.tree.program_was_read(id);
    assert!(unread(&run.tree, exec_ns).is_empty(), "once");
    let program = Program {
        command: Some("busybox".into()),
        static_executable: Some("/bin/busybox".into()),
        peak_rss_bytes: Some(MIB),
        ..Program::default()
    };
    run.tree.set_program(id, program);
    run.tree.confirm_uninstrumented(id);
    let process = run.tree.get(id).unwrap();
    assert_eq!((process.program.image, &*process.name.command), (Image::Uninstrumented, "busybox"));
    assert_ne!(process.program.group, run.tree.get(run.id(MAIN)).unwrap().program.group);
    let summaries = run.over(102, 0).reaped_with(MAIN, 102, 0, 0, used(9, MIB_KIB)).end();
    let program = summary_of(&summaries, 102);
    assert_eq!((program.memory.peak_rss_bytes, program.memory.peak_quality), (Some(MIB), Quality::Sampled));
    assert_eq!(program.name.static_executable.as_deref(), Some("/bin/busybox"));
}

#[test]
fn program_is_confirmed_though_another_process_execs_all_the_time() {
    let mut run = Run::new();
    run.fork(102, MAIN, MIB_KIB).fork(103, MAIN, MIB_KIB);
    let (restless, id) = (run.id(102), run.id(103));
    run.execs(102).tree.program_was_read(restless);
    run.execs(103).tree.program_was_read(id);
    // Each of its execs comes before the time to report of the one before is over.
    for _ in 0..3 {
        run.later(Tolerance::TIME_TO_REPORT_NS / MS - 10).execs(102).tree.program_was_read(restless);
        run.tree.tick(run.now_ns);
    }
    let image = |id| run.tree.get(id).map(|process| process.program.image);
    assert_eq!(image(id), Some(Image::Uninstrumented));
    assert_eq!(unreported_execs(&run.tree), [restless], "it may still report");
    let now_ns = run.now_ns + Tolerance::TIME_TO_REPORT_NS;
    run.tree.tick(now_ns);
    assert!(unreported_execs(&run.tree).is_empty());
}

#[test]
fn late_reading_of_a_program_replaces_nothing() {
    let seen = Program {
        command: Some("script.sh".into()),
        args: Some(vec!["busybox".into(), "script.sh".into()]),
        static_executable: Some("/bin/busybox".into()),
        other_user: None,
        peak_rss_bytes: Some(MIB),
    };
    // It ended while /proc was read, or before.
    let dying = Program { static_executable: None, peak_rss_bytes: None, ..seen.clone() };
    let dead = Program { command: Some("busybox".into()), ..Program::default() };
    for is_reported in [false, true] {
        let mut run = Run { tree: Tree::new(context()), now_ns: T0 + 5 * MS, pid_ns: HERE };
        run.tree.set_main(MAIN, T0 + MS, "busybox");
        let id = run.id(MAIN);
        if is_reported {
            run.execs(MAIN);
        }
        run.tree.set_unreported_image(id, UnreportedMemory::Own, T0 + 5 * MS);
        for program in [&seen, &dying, &dead] {
            run.tree.set_program(id, program.clone());
        }
        run.tree.confirm_uninstrumented(id);
        let process = run.tree.get(id).unwrap();
        assert_eq!(
            (process.name.static_executable.as_ref(), &process.name.args),
            (seen.static_executable.as_ref(), &seen.args)
        );
        assert_eq!(&*process.name.command, "script.sh");
    }
}

// Requirement: SEE-13
#[test]
fn remains_of_a_copy_of_its_parent_replace_a_reading_only_by_another_name() {
    for memory in [UnreportedMemory::Copy, UnreportedMemory::Parents] {
        for (name_at_end, has_args) in [("sh", true), ("ls", false)] {
            let mut run = Run::new();
            let id = run.scan(102, MAIN).id(102);
            run.tree.set_unreported_image(id, memory, run.now_ns);
            let args = Some(vec!["sh".to_owned(), "-c".to_owned()]);
            let command = Some("sh".to_owned());
            let running = Program { command, args, peak_rss_bytes: Some(MIB), ..Program::default() };
            run.tree.set_program(id, running);
            run.tree.set_program(id, Program { command: Some(name_at_end.into()), ..Program::default() });
            let name = &run.tree.get(id).unwrap().name;
            assert_eq!((&*name.command, name.args.is_some()), (name_at_end, has_args), "{memory:?}");
        }
    }
}

#[test]
fn program_read_only_after_its_end_has_its_name() {
    let mut run = Run::new();
    run.fork(102, MAIN, 100 * MIB_KIB).execs(102);
    let id = run.id(102);
    run.tree.set_program(id, Program { command: Some("busybox".into()), ..Program::default() });
    run.tree.confirm_uninstrumented(id);
    assert_eq!(&*run.tree.get(id).unwrap().name.command, "busybox");
}

#[test]
fn command_that_was_never_read_has_the_launchers_name() {
    let mut run = Run { tree: Tree::new(context()), now_ns: T0 + 5 * MS, pid_ns: HERE };
    run.tree.set_main(MAIN, T0 + MS, "busybox");
    let id = run.id(MAIN);
    let mut names = Vec::new();
    for _ in 0..2 {
        run.execs(MAIN);
        run.tree.confirm_uninstrumented(id);
        names.push(run.tree.get(id).unwrap().name.command.to_string());
    }
    assert_eq!(names, ["busybox", "(unseen)"], "what it ran next is not known");
}

#[test]
fn connector_exec_of_the_command_may_precede_the_launcher() {
    let exec = |pid| KernelEvent { at_ns: T0 + MS, pid, what: What::Exec };
    let mut tree = Tree::new(context());
    for pid in [MAIN - 1, MAIN] {
        tree.apply_kernel(&exec(pid), T0 + 2 * MS);
    }
    tree.set_main(MAIN, T0, "static");
    let main = tree.alive()[0];
    assert_eq!((tree.alive().len(), unreported_execs(&tree)), (1, vec![main]));
    assert_eq!(unread(&tree, u64::MAX), [main], "its program will be read");
    assert!(tree.get(main).unwrap().ancestry.is_watched);
    // Its START is read before the launcher's report.
    let mut run = Run { tree: Tree::new(context()), now_ns: T0 + 2 * MS, pid_ns: HERE };
    run.tree.apply_kernel(&exec(MAIN), run.now_ns);
    run.start(MAIN, LAUNCHER);
    run.tree.set_main(MAIN, T0, "dynamic");
    assert_eq!((unreported_execs(&run.tree), unread(&run.tree, u64::MAX)), (vec![], vec![]));
    assert!(run.tree.get(run.id(MAIN)).unwrap().ancestry.is_watched);
}

#[test]
fn slow_start_record_leaves_no_uninstrumented_image() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).fork(102, MAIN, 50 * MIB_KIB).execs(102);
    let id = run.id(102);
    run.tree.confirm_uninstrumented(id);
    run.later(1).sampled(102, 1, 5 * MIB, MIB).reports_late(102);
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality),
        (Some(9 * MIB), Quality::Exact)
    );
}

#[test]
fn program_read_while_loading_leaves_no_second_image() {
    let seen = |command: &str, path: Option<&str>| Program {
        command: Some(command.into()),
        static_executable: path.map(str::to_owned),
        ..Program::default()
    };
    let quality_of = |program: Program, is_fork: bool| {
        let mut run = Run::new();
        if is_fork {
            run.fork(102, MAIN, 50 * MIB_KIB);
        } else {
            run.scan(102, MAIN);
        }
        let id = run.id(102);
        run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
        run.tree.set_program(id, program);
        run.later(1).sampled(102, 1, 5 * MIB, MIB).reports_late(102);
        let summaries = run.end();
        assert_eq!(summary_of(&summaries, 102).memory.peak_rss_bytes, Some(9 * MIB));
        summary_of(&summaries, 102).memory.peak_quality
    };
    for is_fork in [false, true] {
        assert_eq!(quality_of(seen("slow", None), is_fork), Quality::Exact);
        // Another program, and one that can't write a START record.
        assert_eq!(quality_of(seen("other", None), is_fork), Quality::Sampled);
        assert_eq!(quality_of(seen("slow", Some("/bin/slow")), is_fork), Quality::Sampled);
    }
    // An earlier reading showed another program.
    let mut run = Run::new();
    let id = run.scan(102, MAIN).id(102);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    for name in ["static", "slow"] {
        let args = Some(vec![name.to_owned()]);
        run.tree.set_program(id, Program { args, ..seen(name, None) });
    }
    run.later(1).sampled(102, 1, 5 * MIB, MIB).reports_late(102);
    assert_eq!(summary_of(&run.end(), 102).memory.peak_quality, Quality::Sampled);
}

// Requirement: SEE-35
#[test]
fn fork_copy_of_a_client_is_no_call_of_its_own() {
    let args = ["ssh", "-f", "n2", "make"].map(str::to_owned).to_vec();
    let seen = Program { command: Some("ssh".into()), args: Some(args.clone()), ..Program::default() };
    let mut run = Run::new();
    let at_ns = run.now_ns;
    run.tree.announce(Key { pid_ns: HERE, pid: 102 }, args.clone(), None, at_ns);
    run.later(1).start_as(102, MAIN, 0, 0, "ssh").later(1).scan(103, 102);
    // /proc is read before the FORK record.
    let copy = run.id(103);
    run.tree.set_program(copy, seen);
    run.fork(103, 102, MIB_KIB);
    let process = run.tree.get(copy).unwrap();
    assert!(matches!(process.program.image, Image::Forked { .. }) && process.name.args.is_some());
    let summaries = run.end();
    let call = |pid| summary_of(&summaries, pid).client.clone().map(|call| call.args);
    assert_eq!((call(102), call(103)), (Some(args), None));
}

#[test]
fn exec_shown_only_by_a_sample_is_unreported() {
    let program = Program {
        command: Some("busybox".into()),
        static_executable: Some("/bin/busybox".into()),
        ..Program::default()
    };
    for is_fork in [false, true] {
        let mut run = Run::new();
        if is_fork {
            run.fork(102, MAIN, 50 * MIB_KIB);
        } else {
            run.start_as(102, MAIN, 0, 50 * MIB_KIB, "sh");
        }
        let id = run.id(102);
        // The exec is observed before the figures that the sampler read of the new program count.
        run.later(1).sampled(102, 1, 90 * MIB, 7 * MIB);
        let at_ns = run.later(1).now_ns;
        run.tree.observe_exec(id, at_ns - 1);
        assert_eq!(unread(&run.tree, at_ns), [id], "its program will be read");
        run.tree.get_mut(id).unwrap().observed =
            Observed { at_ns, rss_bytes: MIB, peak_rss_bytes: MIB, ..Observed::default() };
        run.tree.set_program(id, program.clone());
        run.tree.confirm_uninstrumented(id);
        let process = run.tree.get(id).unwrap();
        assert_eq!((process.program.image, &*process.name.command), (Image::Uninstrumented, "busybox"));
        assert_eq!(process.observed.peak_rss_bytes, MIB);
        let summaries = run.reaped_with(MAIN, 102, 0, 0, used(1, 100 * MIB_KIB)).end();
        // A fork child's copy of its parent's memory is not its own.
        let peak = if is_fork { 40 * MIB } else { 90 * MIB };
        assert_eq!(
            (
                summary_of(&summaries, 102).memory.peak_rss_bytes,
                summary_of(&summaries, 102).memory.peak_quality
            ),
            (Some(peak), Quality::Sampled)
        );
        assert_eq!(summary_of(&summaries, 102).name.static_executable.as_deref(), Some("/bin/busybox"));
    }
}

#[test]
fn scan_between_exec_and_start_keeps_parents_memory_apart() {
    let mut run = Run::new();
    run.fork(102, MAIN, 100 * MIB_KIB).sampled(102, 1000, 100 * MIB, 0);
    run.record(102, MAIN, 0, Event::Exec { vm_hwm_kib: 103 * MIB_KIB });
    let (id, now_ns) = (run.id(102), run.now_ns);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, now_ns);
    run.start_as(102, MAIN, 0, 103 * MIB_KIB, "true").exit(102, 1, 0).reaped(MAIN, 102, 2);
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, &*summary_of(&summaries, 102).name.command),
        (Some(3 * MIB), "true")
    );
}

#[test]
fn after_an_exec_event_a_start_of_the_same_name_is_another_program() {
    let mut run = Run::new();
    let id = run.kernel_fork(102, MAIN).execs(102).id(102);
    run.tree.set_program(id, Program { command: Some("slow".into()), ..Program::default() });
    run.tree.confirm_uninstrumented(id);
    run.later(1).sampled(102, 1, 5 * MIB, MIB).execs(102).reports_late(102);
    assert_eq!(summary_of(&run.end(), 102).memory.peak_quality, Quality::Sampled);
}
