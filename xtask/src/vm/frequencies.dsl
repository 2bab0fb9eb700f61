// What the CPUs have in common: four states, and where one is asked for. The kernel's own driver acpi-cpufreq and its
// governors (schedutil, performance, powersave, userspace) then run in the guest. An instruction takes as long in one
// state as in another: this is about who asks for which state, not about speed.
Scope (\_SB)
{
    // The two bytes are ports that neither of QEMU's machines for x86 has assigned: what is written goes nowhere, and what
    // is read is all ones. The driver does not look back.
    Name (XPCT, Package ()
    {
        ResourceTemplate () { Register (SystemIO, 8, 0, 0x05A0) },
        ResourceTemplate () { Register (SystemIO, 8, 0, 0x05A1) }
    })
    // MHz, mW, latency in us for the CPU and for bus masters, what is written, what would be read.
    Name (XPSS, Package ()
    {
        Package () { 3000, 24000, 10, 10, 0, 0 },
        Package () { 2200, 16000, 10, 10, 1, 1 },
        Package () { 1400,  9000, 10, 10, 2, 2 },
        Package () {  800,  5000, 10, 10, 3, 3 }
    })
}
