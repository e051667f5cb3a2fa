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
    ///
    /// # Errors
    /// If there is no event set, or the driver can't say whether there are errors.
    pub(super) fn take(&self, api: &Api) -> Reading<Vec<(nvmlDevice_t, u64)>> {
        let set = self.0.clone()?;
        drain(|| {
            let mut data = nvmlEventData_t::zeroed();
            call!(api, nvmlEventSetWait_v2 or nvmlEventSetWait(set, &mut data, policy::EVENT_WAIT_MS))?;
            Ok(data)
        })
    }
}

/// Takes critical errors from the queue. `next` waits for an event. TIMEOUT alone means that there is none. If another failure
/// comes after an error, the errors before it count, and the next reading shows whether the failure lasts.
fn drain(mut next: impl FnMut() -> Result<nvmlEventData_t, Failure>) -> Reading<Vec<(nvmlDevice_t, u64)>> {
    let mut errors = Vec::new();
    for _ in 0..policy::MAX_EVENTS {
        match next() {
            Ok(data) if data.eventType == XID_EVENT => errors.push((data.device, data.eventData)),
            // No other kind was asked for.
            Ok(_) => {}
            Err(Failure(code::TIMEOUT)) => break,
            Err(_) if !errors.is_empty() => break,
            // All devices share the set. The failure does not tell which of them is lost.
            Err(Failure(code::GPU_IS_LOST)) => {
                return Err(Missing::Failed("its events can't be read: a GPU is lost".into()));
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is taken of a queue that answers with these numbers of errors, and then with a return value.
    fn taken(numbers: &[u64], end: u32) -> Reading<Vec<u64>> {
        let mut numbers = numbers.iter();
        let event =
            |number: &u64| nvmlEventData_t { eventType: XID_EVENT, eventData: *number, ..Plain::zeroed() };
        let errors = drain(|| numbers.next().map(event).ok_or(Failure(end)))?;
        Ok(errors.into_iter().map(|(_, number)| number).collect())
    }

    // Requirement: GPU-4
    #[test]
    fn only_a_timeout_means_that_there_are_no_errors() {
        assert_eq!(taken(&[], code::TIMEOUT), Ok(vec![]));
        assert_eq!(taken(&[13, 79], code::TIMEOUT), Ok(vec![13, 79]));
        assert_eq!(taken(&[], code::NOT_SUPPORTED), Err(Missing::NotSupported));
        assert_eq!(taken(&[], code::FUNCTION_NOT_FOUND), Err(Missing::NoCall));
        assert!(matches!(taken(&[], code::UNKNOWN), Err(Missing::Failed(_))));
        assert!(matches!(taken(&[], code::GPU_IS_LOST), Err(Missing::Failed(_))), "which GPU is not known");
        assert_eq!(taken(&[79], code::GPU_IS_LOST), Ok(vec![79]), "the error that explains the loss");
        assert_eq!(taken(&[1 << 20, 13], code::TIMEOUT), Ok(vec![1 << 20, 13]), "the queue is read on");
        assert_eq!(taken(&[13; 2 * policy::MAX_EVENTS], code::TIMEOUT), Ok(vec![13; policy::MAX_EVENTS]));
    }
}
