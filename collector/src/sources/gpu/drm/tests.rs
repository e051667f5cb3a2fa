//! The backend on trees of files like the examples in the kernel's documentation.

use std::fs;
use std::path::Path;

use super::*;
use crate::model::gpu::{Figure, Vendor};

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn amd(root: &Path, card: u32, bus: u32) {
    let pci = format!("sys/class/drm/card{card}/device");
    put(
        root,
        &format!("{pci}/uevent"),
        &format!("DRIVER=amdgpu\nPCI_ID=1002:740F\nPCI_SLOT_NAME=0000:{bus:02X}:00.0\n"),
    );
    put(root, &format!("{pci}/mem_info_vram_total"), "68702699520\n");
    put(root, &format!("{pci}/mem_info_vram_used"), "1073741824\n");
    put(root, &format!("{pci}/gpu_busy_percent"), "42\n");
    put(root, &format!("{pci}/hwmon/hwmon3/power1_average"), "125000000\n");
    put(root, &format!("{pci}/hwmon/hwmon3/temp1_input"), "61000\n");
    put(root, &format!("{pci}/hwmon/hwmon3/freq1_input"), "1700000000\n");
}

/// A descriptor of a process.
fn open(root: &Path, pid: u32, fd: u32, target: &str, info: &str) {
    put(root, &format!("proc/{pid}/fdinfo/{fd}"), info);
    let links = root.join(format!("proc/{pid}/fd"));
    fs::create_dir_all(&links).unwrap();
    let link = links.join(fd.to_string());
    if fs::symlink_metadata(&link).is_err() {
        std::os::unix::fs::symlink(target, link).unwrap();
    }
}

fn amd_client(id: u64, kib: u64, gfx_ns: u64) -> String {
    format!(
        "drm-driver:\tamdgpu\ndrm-client-id:\t{id}\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t{kib} KiB\n\
         drm-engine-gfx:\t{gfx_ns} ns\ndrm-engine-compute:\t0 ns\n"
    )
}

fn backend(root: &Path) -> Drm {
    Drm::start(&GpuConfig { root: root.to_owned(), ..GpuConfig::default() }).unwrap()
}

fn bytes(sample: &DeviceSample) -> Vec<(u32, Reading<u64>)> {
    let list = sample.processes.clone().unwrap().unwrap();
    list.into_iter().map(|process| (process.pid, process.bytes)).collect()
}

const S: u64 = 1_000_000_000;
const NODE: &str = "/dev/dri/renderD128";

#[test]
fn amd_device_has_figures_and_reasons() {
    let root = tempfile::tempdir().unwrap();
    amd(root.path(), 0, 3);
    let mut drm = backend(root.path());
    let devices = drm.devices();
    assert_eq!(devices.len(), 1);
    let device = &devices[0];
    assert_eq!(
        (device.id.as_str(), device.vendor, device.index),
        ("0000:03:00.0", Some(Vendor::Amd), Some(0))
    );
    assert_eq!(device.memory_bytes, Some(68_702_699_520));
    let samples = drm.sample(S, &["0000:03:00.0".into()], &[]);
    let value = |figure| samples[0].values.iter().find(|(f, _)| *f == figure).unwrap().1.clone();
    assert_eq!(value(Figure::MemoryUsed), Ok(1_073_741_824.0));
    assert_eq!(value(Figure::Power), Ok(125.0));
    assert_eq!(value(Figure::Temperature), Ok(61.0));
    assert_eq!(value(Figure::SmClock), Ok(1700.0));
    assert_eq!(value(Figure::MemoryUtilization), Err(Missing::NotSupported));
    assert_eq!(value(Figure::Energy), Err(Missing::NotSupported));
    assert_eq!(samples[0].busy, Some(Ok(vec![Busy { us: 0, percent: 42.0 }])));
    fs::remove_dir_all(root.path().join("sys/class/drm/card0")).unwrap();
    assert!(drm.sample(2 * S, &["0000:03:00.0".into()], &[])[0].is_lost);
}

#[test]
fn virtual_screen_is_no_gpu() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "sys/class/drm/card0/device/uevent", "DRIVER=virtio-pci\nPCI_SLOT_NAME=0000:00:01.0\n");
    let config = GpuConfig { root: root.path().to_owned(), ..GpuConfig::default() };
    assert_eq!(Drm::start(&config).map(|_| ()), Err(Missing::NoDevice));
}

#[test]
fn client_counts_once_for_its_first_process() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    amd(root, 0, 3);
    open(root, 200, 5, NODE, &amd_client(7, 1000, 0));
    open(root, 200, 6, NODE, &amd_client(7, 1000, 0));
    open(root, 200, 7, "/tmp/file", &amd_client(9, 5000, 0));
    let mut drm = backend(root);
    drm.devices();
    let wanted = ["0000:03:00.0".to_owned()];
    assert_eq!(bytes(&drm.sample(S, &wanted, &[200])[0]), [(200, Ok(1_024_000))]);
    // A child with a smaller pid inherits it, and opens one of its own.
    open(root, 100, 5, NODE, &amd_client(7, 1000, 0));
    open(root, 100, 8, NODE, &amd_client(8, 500, 0));
    let now = drm.sample(2 * S, &wanted, &[100, 200]);
    assert_eq!(bytes(&now[0]), [(100, Ok(512_000)), (200, Ok(1_024_000))]);
    // The first owner is gone: the memory is the child's now.
    assert_eq!(bytes(&drm.sample(3 * S, &wanted, &[100])[0]), [(100, Ok(1_536_000))]);
}

#[test]
fn clients_are_found_after_main_thread_ended() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    amd(root, 0, 3);
    open(root, 200, 5, NODE, &amd_client(7, 1000, 0));
    let process = root.join("proc/200");
    for name in ["fd", "fdinfo"] {
        fs::create_dir_all(process.join("task/200").join(name)).unwrap();
        fs::create_dir_all(process.join("task/201")).unwrap();
        fs::rename(process.join(name), process.join("task/201").join(name)).unwrap();
        fs::create_dir(process.join(name)).unwrap();
    }
    let mut drm = backend(root);
    drm.devices();
    assert_eq!(bytes(&drm.sample(S, &["0000:03:00.0".into()], &[200])[0]), [(200, Ok(1_024_000))]);
}

#[test]
fn engine_time_becomes_utilisation_and_never_decreases() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    amd(root, 0, 3);
    let mut drm = backend(root);
    drm.devices();
    let wanted = ["0000:03:00.0".to_owned()];
    let mut busy = |at_s: u64, gfx_ns: u64| {
        open(root, 200, 5, NODE, &amd_client(7, 1000, gfx_ns));
        let sample = drm.sample(at_s * S, &wanted, &[200]);
        let list = sample[0].process_busy.clone().unwrap().unwrap();
        (list[0].is_from_start, list[0].busy.us, list[0].busy.percent)
    };
    assert_eq!(busy(1, S / 10), (true, 100_000, 100.0), "since the process started");
    assert_eq!(busy(2, S / 10 + S / 2), (false, 1_000_000, 50.0));
    assert_eq!(busy(3, S / 10 + S / 4), (false, 1_000_000, 0.0));
    assert_eq!(busy(5, S / 10 + S), (false, 2_000_000, 25.0));
    assert_eq!(busy(6, S / 10 + 4 * S), (false, 1_000_000, 300.0), "it catches up");
}

#[test]
fn new_client_counts_from_0_unless_it_is_older_than_the_last_reading() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    amd(root, 0, 3);
    let mut drm = backend(root);
    drm.devices();
    let wanted = ["0000:03:00.0".to_owned()];
    let mut at_s = 0;
    let mut sample = || {
        at_s += 1;
        let list = drm.sample(at_s * S, &wanted, &[200])[0].process_busy.clone().unwrap().unwrap();
        list.iter().map(|process| process.busy.percent).collect::<Vec<_>>()
    };
    assert!(sample().is_empty());
    open(root, 200, 5, NODE, &amd_client(7, 1000, S * 3 / 4));
    assert_eq!(sample(), [75.0]);
    open(root, 200, 6, NODE, &amd_client(8, 1000, 90 * S));
    assert!(sample().is_empty(), "of the second it is not known how much");
    open(root, 200, 6, NODE, &amd_client(8, 1000, 90 * S + S / 2));
    assert_eq!(sample(), [50.0]);
}

#[test]
fn xe_engine_cycles_become_utilisation() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let pci = "sys/class/drm/card1/device";
    put(root, &format!("{pci}/uevent"), "DRIVER=xe\nPCI_ID=8086:56A0\nPCI_SLOT_NAME=0000:04:00.0\n");
    put(root, &format!("{pci}/hwmon/hwmon1/energy1_input"), "5000000\n");
    put(root, &format!("{pci}/tile0/gt0/freq0/act_freq"), "2400\n");
    let client = |cycles: u64, total: u64| {
        format!(
            "drm-driver: xe\ndrm-client-id: 3\ndrm-pdev: 0000:04:00.0\ndrm-resident-vram0: 2 MiB\n\
             drm-cycles-ccs: {cycles}\ndrm-total-cycles-ccs: {total}\ndrm-engine-capacity-ccs: 2\n"
        )
    };
    let mut drm = backend(root);
    assert_eq!(drm.devices()[0].vendor, Some(Vendor::Intel));
    let wanted = ["0000:04:00.0".to_owned()];
    open(root, 9, 4, NODE, &client(1000, 10_000));
    drm.sample(S, &wanted, &[9]);
    open(root, 9, 4, NODE, &client(2000, 12_000));
    let sample = &drm.sample(2 * S, &wanted, &[9])[0];
    assert_eq!(sample.process_busy.clone().unwrap().unwrap()[0].busy.percent, 25.0);
    assert_eq!(bytes(sample), [(9, Ok(2 << 20))]);
    assert!(sample.values.contains(&(Figure::Energy, Ok(5.0))));
    assert!(sample.values.contains(&(Figure::SmClock, Ok(2400.0))));
    assert_eq!(sample.busy, Some(Err(Missing::NotSupported)), "reported by process only");
    // The speed of the cycles is known now: 2000 in a second.
    drm.sample(3 * S, &wanted, &[9, 10]);
    open(root, 10, 4, NODE, &client(1000, 14_000).replace("client-id: 3", "client-id: 4"));
    let list = drm.sample(4 * S, &wanted, &[9, 10])[0].process_busy.clone().unwrap().unwrap();
    assert_eq!((list[1].pid, list[1].busy.percent), (10, 25.0));
}

/// Two directories of sensors, as of i915's device and its GT; the second is read first by name. And the labels of an MI300,
/// which has no edge sensor.
#[test]
fn sensors_are_found_by_name_and_label() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let i915 = "sys/class/drm/card0/device";
    put(root, &format!("{i915}/uevent"), "DRIVER=i915\nPCI_SLOT_NAME=0000:04:00.0\n");
    let amd = "sys/class/drm/card1/device";
    put(root, &format!("{amd}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:05:00.0\n");
    let xe = "sys/class/drm/card2/device";
    put(root, &format!("{xe}/uevent"), "DRIVER=xe\nPCI_SLOT_NAME=0000:06:00.0\n");
    for (file, text) in [
        (format!("{xe}/hwmon/hwmon3/energy2_label"), "pkg"),
        (format!("{xe}/hwmon/hwmon3/energy2_input"), "3000000"),
        (format!("{i915}/hwmon/hwmon10/name"), "i915_gt0"),
        (format!("{i915}/hwmon/hwmon10/energy1_input"), "1000"),
        (format!("{i915}/hwmon/hwmon9/name"), "i915"),
        (format!("{i915}/hwmon/hwmon9/energy1_input"), "2000000"),
        (format!("{amd}/hwmon/hwmon10/temp2_input"), "70000"),
        (format!("{amd}/hwmon/hwmon10/temp2_label"), "junction"),
        (format!("{amd}/hwmon/hwmon10/temp1_input"), "50000"),
        (format!("{amd}/hwmon/hwmon10/temp1_label"), "mem"),
    ] {
        put(root, &file, &format!("{text}\n"));
    }
    let mut drm = backend(root);
    drm.devices();
    let samples = drm.sample(S, &["0000:04:00.0", "0000:05:00.0", "0000:06:00.0"].map(Into::into), &[]);
    assert!(samples[0].values.contains(&(Figure::Energy, Ok(2.0))));
    assert!(samples[1].values.contains(&(Figure::Temperature, Ok(70.0))));
    assert!(
        samples[2].values.contains(&(Figure::Energy, Ok(3.0))),
        "of the package, where that is all there is"
    );
}

#[test]
fn kfd_adds_compute_memory_and_devices_without_drm_node() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    amd(root, 0, 3);
    let nodes = "sys/class/kfd/kfd/topology/nodes";
    put(root, &format!("{nodes}/0/gpu_id"), "0\n");
    for (number, gpu_id, location) in [(1, 41_000, 3 << 8), (2, 52_000, (0x83 << 8) | (1 << 3))] {
        put(root, &format!("{nodes}/{number}/gpu_id"), &format!("{gpu_id}\n"));
        put(root, &format!("{nodes}/{number}/name"), "aldebaran\n");
        let properties = format!("cpu_cores_count 0\nlocation_id {location}\ndomain 0\nvendor_id 4098\n");
        put(root, &format!("{nodes}/{number}/properties"), &properties);
        put(
            root,
            &format!("{nodes}/{number}/mem_banks/0/properties"),
            "heap_type 1\nsize_in_bytes 68702699520\n",
        );
    }
    open(root, 200, 5, NODE, &amd_client(7, 1000, 0));
    put(root, "sys/class/kfd/kfd/proc/200/vram_41000", "5000000\n");
    put(root, "sys/class/kfd/kfd/proc/300/vram_52000", "7000000\n");
    put(root, "sys/class/kfd/kfd/proc/999/vram_52000", "9000000\n");
    let mut drm = backend(root);
    let devices = drm.devices();
    let ids: Vec<_> =
        devices.iter().map(|device| (device.id.as_str(), device.index, device.source.as_str())).collect();
    assert_eq!(ids, [("0000:03:00.0", Some(0), "amdgpu"), ("0000:83:01.0", Some(1), "kfd")]);
    assert_eq!(
        (devices[1].name.as_deref(), devices[1].memory_bytes),
        (Some("aldebaran"), Some(68_702_699_520))
    );
    let wanted: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
    let samples = drm.sample(S, &wanted, &[200, 300]);
    assert_eq!(bytes(&samples[0]), [(200, Ok(5_000_000))], "the larger of the two");
    assert_eq!(bytes(&samples[1]), [(300, Ok(7_000_000))], "only processes of the run");
}

/// A container without DRM nodes, on a kernel that gives all partitions the same number; and one with the last partition only.
#[test]
fn partitions_known_only_to_kfd_have_names_of_their_own() {
    for (locations, expected) in [
        (&[3 << 8, 3 << 8][..], &["0000:03:00.0/0", "0000:03:00.0/1"][..]),
        (&[3 << 8 | 7 << 28], &["0000:03:00.0/7"]),
        (&[3 << 8], &["0000:03:00.0"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (number, location) in (1..).zip(locations) {
            let node = format!("sys/class/kfd/kfd/topology/nodes/{number}");
            put(root, &format!("{node}/gpu_id"), &format!("{}\n", 41_000 + number));
            put(root, &format!("{node}/properties"), &format!("location_id {location}\ndomain 0\n"));
            put(
                root,
                &format!("sys/class/kfd/kfd/proc/200/vram_{}", 41_000 + number),
                &format!("{number}000\n"),
            );
        }
        let mut drm = backend(root);
        let devices = drm.devices();
        let ids: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
        assert_eq!(ids, expected);
        assert!(devices.iter().all(|device| device.parent.is_none()), "there is no whole device");
        for (number, sample) in (1..).zip(drm.sample(S, &ids, &[200])) {
            assert_eq!(bytes(&sample), [(200, Ok(number * 1000))]);
        }
    }
}
