//! Counters of flow rules.

use zerocopy::IntoBytes;

use crate::abi::id;
use crate::call::Call;
use crate::handle::CountersHandle;
use crate::{Context, UverbsError};

impl Context {
    /// Makes a set of counters, to be given to rules with [`FlowSpec::Count`](crate::flow::FlowSpec::Count). `extend` adds
    /// the driver's attributes.
    ///
    /// # Errors
    /// What the kernel says. There is no older form.
    pub fn create_counters<'a>(
        &self,
        extend: impl FnOnce(&mut Call<'a>),
    ) -> Result<CountersHandle, UverbsError> {
        use id::counters::create as a;
        let mut call = Call::new(id::counters::OBJECT, a::METHOD);
        call.new_object(a::HANDLE);
        extend(&mut call);
        self.call(&mut call)?;
        Ok(CountersHandle(call.created(a::HANDLE)?))
    }

    /// Reads counters; `cached` takes the driver's last values where it keeps them.
    ///
    /// # Errors
    /// What the kernel says, or an answer with fewer counters.
    pub fn read_counters(
        &self,
        counters: CountersHandle,
        cached: bool,
        into: &mut [u64],
    ) -> Result<(), UverbsError> {
        use id::counters::read as a;
        let wanted = size_of_val(into);
        let mut call = Call::new(id::counters::OBJECT, a::METHOD);
        call.object(a::HANDLE, counters.0).out(a::BUFF, into.as_mut_bytes()).u32(a::FLAGS, u32::from(cached));
        self.call(&mut call)?;
        let bytes = call.answered(a::BUFF)?.len();
        if bytes < wanted {
            let operation = call.operation();
            return Err(UverbsError::Short {
                operation,
                attribute: operation.attribute(a::BUFF),
                bytes,
                wanted,
            });
        }
        Ok(())
    }

    /// Destroys a set of counters.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a rule counts there.
    pub fn destroy_counters(&self, counters: CountersHandle) -> Result<(), UverbsError> {
        let mut call = Call::new(id::counters::OBJECT, id::counters::destroy::METHOD);
        call.object(id::counters::destroy::HANDLE, counters.0);
        self.call(&mut call)
    }
}
