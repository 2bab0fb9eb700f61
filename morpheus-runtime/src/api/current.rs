//! The runtimes that there are, so that a task finds the one it runs on.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::domain::Domain;
use morpheus_system::lock::lock;

/// The domains of the runtimes that there are.
fn runtimes() -> MutexGuard<'static, Vec<Weak<Domain>>> {
    static RUNTIMES: Mutex<Vec<Weak<Domain>>> = Mutex::new(Vec::new());
    lock(&RUNTIMES)
}

/// Makes a domain known whose tokio runtime has been built.
pub(crate) fn register(domain: &Arc<Domain>) {
    morpheus_stacks::find_current_by(|| Some(of_current()?.1.stacks.stalls()));
    let mut runtimes = runtimes();
    runtimes.retain(|domain| domain.strong_count() > 0);
    runtimes.push(Arc::downgrade(domain));
}

/// The runtime that is current on this thread, if it is one of Morpheus's.
pub(crate) fn of_current() -> Option<(tokio::runtime::Handle, Arc<Domain>)> {
    let handle = tokio::runtime::Handle::try_current().ok()?;
    let domain = of_runtime(handle.id())?;
    Some((handle, domain))
}

/// The domain of a tokio runtime, if it has one.
fn of_runtime(id: tokio::runtime::Id) -> Option<Arc<Domain>> {
    let runtimes = runtimes();
    let mut domains = runtimes.iter().filter_map(Weak::upgrade);
    domains.find(|domain| domain.runtime.get() == Some(&id))
}
