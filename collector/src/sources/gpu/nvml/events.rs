//! Critical errors (XIDs), which NVML queues in an event set.

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t};

use super::api::{Api, Failure, Plain, call, code};
use super::policy;
use crate::model::gpu::{Missing, Reading};

/// nvml.h, `nvmlEventTypeXidCriticalError`.
const XID_EVENT: u64 = 8;

/// The event set, or why there is none.
pub(super) struct Events(Reading<nvmlEventSet_t>);

impl Events {
    /// Creates the set of events. After a failure there is none.
    pub(super) fn new(api: &Api) -> Self {
        let mut set = std::ptr::null_mut();
        Self(call!(api, nvmlEventSetCreate(&mut set)).map(|()| set).map_err(Missing::from))
    }

    /// Asks the driver to report the critical errors (XIDs) of a device. `registered`: the devices that report theirs already.
    /// If the driver spoils the event set, the other devices get a new set. If it spoils that too, no device reports errors.
    ///
    /// # Errors
    /// If the driver does not report the errors of this device.
    pub(super) fn register(
        &mut self,
        api: &Api,
        device: nvmlDevice_t,
        registered: &[nvmlDevice_t],
    ) -> Reading<()> {
        let failure = match Self::ask(api, device, self.0.clone()?) {
            Ok(()) => return Ok(()),
            Err(failure) if failure != Failure(code::UNKNOWN) => return Err(failure.into()),
            Err(failure) => failure,
        };
        // nvml.h: the set is undefined after this error and has to be freed.
        self.free(api);
        *self = Self::new(api);
        let set = self.0.clone()?;
        if registered.iter().any(|other| Self::ask(api, *other, set) == Err(failure)) {
            self.free(api);
        }
        Err(failure.into())
    }

    /// `Ok`: there is an event set. `Err`: why there is none.
    pub(super) fn availability(&self) -> Reading<()> {
        self.0.clone().map(|_| ())
    }

    /// Asks the driver to queue the errors of a device in `set`.
    fn ask(api: &Api, device: nvmlDevice_t, set: nvmlEventSet_t) -> Result<(), Failure> {
        call!(api, nvmlDeviceRegisterEvents(device, XID_EVENT, set))
    }

    /// Frees the set. There is none from then on.
    fn free(&mut self, api: &Api) {
        let none = Err(Missing::from(Failure(code::UNKNOWN)));
        if let Ok(set) = std::mem::replace(&mut self.0, none) {
            let _ = call!(api, nvmlEventSetFree(set));
        }
    }

    /// Takes the errors since the last call, `policy::MAX_EVENTS` at most. Each is a device and the XID, the error's number.
    pub(super) fn take(&self, api: &Api) -> Vec<(nvmlDevice_t, u64)> {
        let Ok(set) = self.0 else { return Vec::new() };
        std::iter::from_fn(|| next(api, set)).take(policy::MAX_EVENTS).collect()
    }
}

/// Takes the next critical error that NVML has queued. `None`: there is none, or the call failed.
fn next(api: &Api, set: nvmlEventSet_t) -> Option<(nvmlDevice_t, u64)> {
    let mut data = nvmlEventData_t::zeroed();
    call!(api, nvmlEventSetWait_v2 or nvmlEventSetWait(set, &mut data, policy::EVENT_WAIT_MS)).ok()?;
    Some((data.device, data.eventData))
        .filter(|(_, xid)| data.eventType == XID_EVENT && *xid <= policy::LARGEST_XID)
}
