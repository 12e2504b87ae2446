//! From the number of a request to its function.

use alloc::sync::Arc;

use super::abi::{self, cap};
use super::cpuid;
use super::machine::{MOST_VCPUS, Machine};
use super::vcpu::Vcpu;
use crate::addr::PAGE_BYTES;
use crate::arch::uaccess::Pod;
use crate::errno::Errno;
use crate::mm::MemorySpace;
use crate::mm::nested::MOST_SLOTS;
use crate::user_memory::UserPtr;

/// What a descriptor stands for.
#[derive(Clone, Debug)]
pub enum Object {
    /// `/dev/kvm`.
    System,
    /// A virtual machine.
    Machine(Arc<Machine>),
    /// One of its CPUs.
    Vcpu(Arc<Vcpu>),
}

/// Who asks: a thread inside a system call.
pub struct Caller<'a> {
    /// The address space it runs in.
    pub space: Arc<MemorySpace>,
    /// Whether it must not wait or run a guest any longer. Any context.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// What a request answers.
#[derive(Debug)]
pub enum Answer {
    /// A number.
    Number(usize),
    /// Something that needs a descriptor.
    New(Object),
}

const DONE: Answer = Answer::Number(0);

impl Object {
    /// The program that asked for it got no descriptor.
    pub fn take_back(&self) {
        if let Self::Vcpu(vcpu) = self {
            vcpu.take_back();
        }
    }

    /// An `ioctl`.
    ///
    /// # Errors
    /// As Linux's; EIO for a machine of another program.
    pub fn request(
        &self,
        caller: &Caller<'_>,
        number: u32,
        argument: usize,
    ) -> Result<Answer, Errno> {
        match self {
            Self::System => system(caller, number, argument),
            Self::Machine(machine) => {
                machine.check_owner(&caller.space)?;
                of_machine(machine, number, argument)
            }
            Self::Vcpu(vcpu) => {
                vcpu.machine().check_owner(&caller.space)?;
                of_vcpu(vcpu, caller, number, argument)
            }
        }
    }
}

fn system(caller: &Caller<'_>, number: u32, argument: usize) -> Result<Answer, Errno> {
    match number {
        abi::GET_API_VERSION if argument == 0 => Ok(Answer::Number(abi::API_VERSION)),
        abi::CREATE_VM if argument == 0 => {
            let machine = Machine::new(&caller.space)?;
            Ok(Answer::New(Object::Machine(machine)))
        }
        abi::CHECK_EXTENSION => Ok(Answer::Number(extension(argument))),
        abi::GET_SUPPORTED_CPUID => {
            cpuid::write_supported(argument)?;
            Ok(DONE)
        }
        abi::GET_VCPU_MMAP_SIZE if argument == 0 => Ok(Answer::Number(PAGE_BYTES)),
        _ => Err(Errno::EINVAL),
    }
}

/// What the extension with that number is worth; 0 without it.
fn extension(number: usize) -> usize {
    match number as u32 {
        cap::USER_MEMORY
        | cap::SET_TSS_ADDR
        | cap::EXT_CPUID
        | cap::SYNC_MMU
        | cap::DESTROY_MEMORY_REGION_WORKS
        | cap::USER_NMI
        | cap::JOIN_MEMORY_REGIONS_WORKS
        | cap::SET_IDENTITY_MAP_ADDR
        | cap::INTERNAL_ERROR_DATA
        | cap::READONLY_MEM
        | cap::ENABLE_CAP_VM
        | cap::CHECK_EXTENSION_VM
        | cap::IMMEDIATE_EXIT => 1,
        cap::NR_VCPUS | cap::MAX_VCPUS | cap::MAX_VCPU_ID => MOST_VCPUS,
        cap::NR_MEMSLOTS => MOST_SLOTS,
        cap::MANUAL_DIRTY_LOG_PROTECT2 => {
            (abi::DIRTY_LOG_MANUAL_PROTECT | abi::DIRTY_LOG_INITIALLY_SET) as usize
        }
        _ => 0,
    }
}

fn of_machine(machine: &Arc<Machine>, number: u32, argument: usize) -> Result<Answer, Errno> {
    match number {
        abi::CHECK_EXTENSION => return Ok(Answer::Number(extension(argument))),
        abi::CREATE_VCPU => {
            let vcpu = machine.create_vcpu(argument)?;
            return Ok(Answer::New(Object::Vcpu(vcpu)));
        }
        abi::SET_USER_MEMORY_REGION => machine.set_memory(read(argument)?)?,
        abi::GET_DIRTY_LOG => machine.read_log(read(argument)?)?,
        abi::CLEAR_DIRTY_LOG => machine.clear_log(read(argument)?)?,
        abi::ENABLE_CAP => machine.enable(read(argument)?)?,
        // For Intel's processors, which need memory of the guest's for their own.
        abi::SET_TSS_ADDR => {}
        abi::SET_IDENTITY_MAP_ADDR => drop(read::<u64>(argument)?),
        _ => return Err(Errno::ENOTTY),
    }
    Ok(DONE)
}

fn of_vcpu(
    vcpu: &Vcpu,
    caller: &Caller<'_>,
    number: u32,
    argument: usize,
) -> Result<Answer, Errno> {
    match number {
        abi::RUN if argument == 0 => vcpu.run(caller)?,
        abi::GET_REGS => write(argument, vcpu.state().regs())?,
        abi::SET_REGS => {
            let wanted = read(argument)?;
            vcpu.state().set_regs(&wanted);
        }
        abi::GET_SREGS => write(argument, vcpu.state().sregs())?,
        abi::SET_SREGS => {
            let wanted = read(argument)?;
            vcpu.state().set_sregs(&wanted)?;
        }
        abi::NMI => vcpu.state().queue_nmi(),
        abi::INTERRUPT => vcpu.state().queue_interrupt(read(argument)?)?,
        abi::SET_CPUID2 => {
            let entries = cpuid::read_entries(argument)?;
            vcpu.state().set_cpuid(entries);
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(DONE)
}

fn read<T: Pod>(address: usize) -> Result<T, Errno> {
    UserPtr::new(address).read()
}

fn write<T: Pod>(address: usize, value: T) -> Result<(), Errno> {
    UserPtr::new(address).write(value)
}
