//! What tasks of the host do with virtual machines.

use shootdown::Capacity;

use crate::kernel::World;
use crate::kernel::guest::layout::GUEST_PAGES;
use crate::kernel::guest::vm::Vm;
use crate::kernel::theme::Draw;

impl<C: Capacity> World<C> {
    /// Runs a virtual CPU, changes its memory, or ends its virtual machine. The CPU that calls this is online.
    pub(in crate::kernel) fn use_guests(&self, draw: &mut Draw) {
        let place = draw.vm_place();
        match draw.below(24) {
            0 => self.end_vm(place),
            1..14 => {
                if let Some(vm) = self.get_vm(place) {
                    let vcpu = &vm.vcpus[draw.below(vm.vcpus.len())];
                    self.run_vcpu(&vm, vcpu, draw);
                    self.put_vm(vm);
                }
            }
            _ => self.change_some_vm(draw),
        }
    }

    /// Changes the memory of a virtual machine, which may run anywhere or not.
    pub(in crate::kernel) fn change_some_vm(&self, draw: &mut Draw) {
        let Some(vm) = self.get_vm(draw.vm_place()) else {
            return;
        };
        let off = draw.once_in(6);
        self.with_interrupts(off, || self.change_vm(&vm, draw));
        self.put_vm(vm);
    }

    fn change_vm(&self, vm: &Vm<C>, draw: &mut Draw) {
        let page = draw.page() % GUEST_PAGES;
        match draw.below(16) {
            0..2 => {
                let held = vm.lock.take(&self.engine);
                self.populate(vm, page, draw.random.bool());
                drop(held);
            }
            2..7 => {
                let pages = 1 << page | (draw.random.u8(..) & draw.random.u8(..));
                let prunes = draw.random.bool();
                self.unmap_nested(vm, pages, prunes, draw);
            }
            7..9 => self.share_nested(vm, page, draw),
            9 => {
                let held = vm.lock.take(&self.engine);
                let nested = vm.inner.borrow().pages[page].filter(|nested| !nested.writable);
                if let Some(nested) = nested {
                    self.grant_store(vm, page, nested);
                }
                drop(held);
            }
            10 => {
                let held = vm.lock.take(&self.engine);
                self.replace(vm, page, held, draw);
            }
            11..13 if !vm.log.is_on() || draw.once_in(4) => self.toggle_log(vm, draw),
            _ => self.read_log(vm, draw),
        }
    }
}
