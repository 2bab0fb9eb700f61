//! The broker's messages: what an application and the daemon `scx_morpheus` send on the broker's socket.
//!
//! The socket is `SOCK_SEQPACKET`: one message is one packet, of at most [`MESSAGE_BYTES`]. The application
//! sends requests. The daemon answers each with exactly one reply, in order. The connection is the lease:
//! when it closes, the daemon frees everything that it handed out. It answers a wrong request with
//! [`Reply::Refused`] and then closes the connection.
//!
//! ```text
//! application                              daemon
//!   Hello { slots, policy, budget, … }  →
//!                                       ←  Welcome { mode, slots }   with three descriptors:
//!                                          the runtime's area (to read and write), the kernel's area
//!                                          (to read), the ring of events
//!   Register { slot, tid } + a pidfd    →  (of the thread, PIDFD_THREAD; without one, the daemon uses
//!                                           the tid and the peer's credentials)
//!                                       ←  Registered { slot }
//!   Unregister { slot }                 →
//!                                       ←  Unregistered { slot }
//! ```
//!
//! Every message begins with the magic number, the version of this protocol, the kind, and the length of the
//! whole message. Numbers have the machine's byte order, because both sides are on one machine.
//!
//! ```
//! use morpheus_common::broker::{Reply, Refusal, Request};
//!
//! let request = Request::Register { slot: 3, tid: 4711 };
//! let message = request.encode();
//! assert_eq!(Request::decode(message.bytes()), Ok(request));
//! assert_eq!(Request::decode(b"GET / HTTP/1.1\r\n"), Err(Refusal::Magic));
//! ```

/// Version of the protocol. It increases with every change of a message's meaning. The daemon refuses all
/// others.
pub const VERSION: u16 = 1;
/// Path at which the daemon listens by default.
pub const DEFAULT_SOCKET: &str = "/run/morpheus/broker.sock";
/// Environment variable that names another socket.
pub const SOCKET_VARIABLE: &str = "MORPHEUS_SOCKET";
/// Maximal length of a message, in bytes.
pub const MESSAGE_BYTES: usize = 64;

/// "MBRK", read from the highest byte to the lowest.
const MAGIC: u32 = 0x4d42_524b;
/// Length of magic, version, kind, length and a word that is 0, in bytes.
const HEADER_BYTES: usize = 16;

/// An encoded message, ready to be sent as one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    buffer: [u8; MESSAGE_BYTES],
    length: usize,
}

impl Message {
    /// Returns the bytes of the packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn new(kind: u16) -> Message {
        let mut message = Message {
            buffer: [0; MESSAGE_BYTES],
            length: HEADER_BYTES,
        };
        message.buffer[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
        message.buffer[4..6].copy_from_slice(&VERSION.to_ne_bytes());
        message.buffer[6..8].copy_from_slice(&kind.to_ne_bytes());
        message.write_length();
        message
    }

    fn write_length(&mut self) {
        let length = self.length as u32;
        self.buffer[8..12].copy_from_slice(&length.to_ne_bytes());
    }

    fn u32(mut self, word: u32) -> Message {
        self.buffer[self.length..self.length + 4].copy_from_slice(&word.to_ne_bytes());
        self.length += 4;
        self.write_length();
        self
    }

    fn u64(mut self, word: u64) -> Message {
        self.buffer[self.length..self.length + 8].copy_from_slice(&word.to_ne_bytes());
        self.length += 8;
        self.write_length();
        self
    }
}

/// Reads a message from front to back, and checks every read.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks the header and returns the kind.
    fn open(bytes: &'a [u8]) -> Result<(u16, Reader<'a>), Refusal> {
        let mut reader = Reader { rest: bytes };
        if reader.u32().map_err(|_| Refusal::Magic)? != MAGIC {
            return Err(Refusal::Magic);
        }
        let version_and_kind = reader.take::<4>()?;
        let version = u16::from_ne_bytes([version_and_kind[0], version_and_kind[1]]);
        let kind = u16::from_ne_bytes([version_and_kind[2], version_and_kind[3]]);
        if version != VERSION {
            return Err(Refusal::Version);
        }
        let length = reader.u32()?;
        let zero = reader.u32()?;
        if length as usize != bytes.len() || bytes.len() > MESSAGE_BYTES || zero != 0 {
            return Err(Refusal::Length);
        }
        Ok((kind, reader))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (word, rest) = self.rest.split_first_chunk::<N>().ok_or(Refusal::Length)?;
        self.rest = rest;
        Ok(*word)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.take().map(u64::from_ne_bytes)
    }

    fn close<T>(self, message: T) -> Result<T, Refusal> {
        if self.rest.is_empty() {
            Ok(message)
        } else {
            Err(Refusal::Length)
        }
    }
}

/// A request of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// [`MORPHEUS_ABI_VERSION`](crate::abi::MORPHEUS_ABI_VERSION) of the application.
        abi_version: u32,
        /// Number of slots that the application needs.
        slots: u32,
        /// The last step that the ladder may take, as in
        /// [`morpheus_runtime_header`](crate::abi::morpheus_runtime_header).
        policy: u32,
        /// Time after which a poll is stalled, in nanoseconds.
        budget_ns: u64,
        /// Further time that a poll has to answer a request, in nanoseconds of CPU time.
        grace_ns: u64,
    },
    /// A thread takes a slot. The packet carries a pidfd of the thread, if the kernel supports that.
    Register {
        /// Index of the slot, less than the number of slots.
        slot: u32,
        /// Kernel thread ID, in the thread's own PID namespace.
        tid: u32,
    },
    /// The thread of this slot leaves it.
    Unregister {
        /// As in `Register`.
        slot: u32,
    },
}

impl Request {
    /// Encodes the request as one packet.
    #[must_use]
    pub fn encode(&self) -> Message {
        match *self {
            Request::Hello {
                abi_version,
                slots,
                policy,
                budget_ns,
                grace_ns,
            } => Message::new(1)
                .u32(abi_version)
                .u32(slots)
                .u32(policy)
                .u32(0)
                .u64(budget_ns)
                .u64(grace_ns),
            Request::Register { slot, tid } => Message::new(2).u32(slot).u32(tid),
            Request::Unregister { slot } => Message::new(3).u32(slot),
        }
    }

    /// Decodes the request of one packet.
    ///
    /// # Errors
    ///
    /// The packet is no request of this version. The error is the refusal that the daemon answers with.
    pub fn decode(bytes: &[u8]) -> Result<Request, Refusal> {
        let (kind, mut reader) = Reader::open(bytes)?;
        let request = match kind {
            1 => {
                let (abi_version, slots) = (reader.u32()?, reader.u32()?);
                let (policy, zero) = (reader.u32()?, reader.u32()?);
                if zero != 0 {
                    return Err(Refusal::Length);
                }
                Request::Hello {
                    abi_version,
                    slots,
                    policy,
                    budget_ns: reader.u64()?,
                    grace_ns: reader.u64()?,
                }
            }
            2 => Request::Register {
                slot: reader.u32()?,
                tid: reader.u32()?,
            },
            3 => Request::Unregister {
                slot: reader.u32()?,
            },
            _ => return Err(Refusal::Kind),
        };
        reader.close(request)
    }
}

/// A reply of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The application gets its areas. The packet carries three descriptors, in this order: the runtime's
    /// area, the kernel's area, the ring.
    Welcome {
        /// A `morpheus_kernel_mode`.
        mode: u32,
        /// Number of slots: the number that was requested.
        slots: u32,
    },
    /// The thread has the slot.
    Registered {
        /// The slot that was requested.
        slot: u32,
    },
    /// No thread has the slot: as was asked for, or because the thread that was to have it has ended.
    Unregistered {
        /// The slot that was named.
        slot: u32,
    },
    /// The daemon refuses, and closes the connection next.
    Refused(Refusal),
}

impl Reply {
    /// Encodes the reply as one packet.
    #[must_use]
    pub fn encode(&self) -> Message {
        match *self {
            Reply::Welcome { mode, slots } => Message::new(0x101).u32(mode).u32(slots),
            Reply::Registered { slot } => Message::new(0x102).u32(slot),
            Reply::Unregistered { slot } => Message::new(0x103).u32(slot),
            Reply::Refused(refusal) => Message::new(0x1ff).u32(refusal as u32),
        }
    }

    /// Decodes the reply of one packet.
    ///
    /// # Errors
    ///
    /// The packet is no reply of this version; its sender is then no daemon of this version. The error says
    /// what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Refusal> {
        let (kind, mut reader) = Reader::open(bytes)?;
        let reply = match kind {
            0x101 => Reply::Welcome {
                mode: reader.u32()?,
                slots: reader.u32()?,
            },
            0x102 => Reply::Registered {
                slot: reader.u32()?,
            },
            0x103 => Reply::Unregistered {
                slot: reader.u32()?,
            },
            0x1ff => Reply::Refused(Refusal::from_number(reader.u32()?)),
            _ => return Err(Refusal::Kind),
        };
        reader.close(reply)
    }
}

/// The reason of a refusal. Its text says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum Refusal {
    /// The daemon failed, and the application cannot correct that. The daemon's log has the reason.
    Internal = 0,
    /// The packet is no message of this protocol.
    Magic = 1,
    /// The protocol has another version.
    Version = 2,
    /// The message is too long or too short.
    Length = 3,
    /// There is no request of this kind.
    Kind = 4,
    /// `Hello` must be the first message, and comes once.
    Order = 5,
    /// The shared memory has another version of the layout.
    Abi = 6,
    /// No slots, or more than a process may have.
    Slots = 7,
    /// No such policy, or a budget of 0.
    Limits = 8,
    /// The daemon already serves the maximal number of processes.
    Processes = 9,
    /// Too many requests in too short a time.
    Rate = 10,
    /// No such slot, or another thread has it.
    Slot = 11,
    /// The thread does not belong to the peer.
    Thread = 12,
    /// The processes of this user hold as much kernel memory as they may.
    Memory = 13,
}

impl Refusal {
    fn from_number(number: u32) -> Refusal {
        const ALL: [Refusal; 14] = [
            Refusal::Internal,
            Refusal::Magic,
            Refusal::Version,
            Refusal::Length,
            Refusal::Kind,
            Refusal::Order,
            Refusal::Abi,
            Refusal::Slots,
            Refusal::Limits,
            Refusal::Processes,
            Refusal::Rate,
            Refusal::Slot,
            Refusal::Thread,
            Refusal::Memory,
        ];
        ALL.get(number as usize)
            .copied()
            .unwrap_or(Refusal::Internal)
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::Internal => "the daemon failed; its log says why",
            Refusal::Magic => "the packet is no message of Morpheus",
            Refusal::Version => {
                "the protocol has another version: use daemon and application of the same release"
            }
            Refusal::Length => "the message is too long or too short",
            Refusal::Kind => "there is no such request",
            Refusal::Order => "Hello must be the first request, and comes once",
            Refusal::Abi => {
                "the control block has another version: use daemon and application of the same release"
            }
            Refusal::Slots => "no slots, or more than a process may have",
            Refusal::Limits => "no such policy, or a budget of 0",
            Refusal::Processes => "the daemon already serves the maximal number of processes",
            Refusal::Rate => "too many requests in too short a time",
            Refusal::Slot => "no such slot, or another thread has it",
            Refusal::Thread => "the thread does not belong to this process",
            Refusal::Memory => {
                "the processes of this user hold as much kernel memory as they may, mappings of ended connections included"
            }
        })
    }
}

impl core::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: [Request; 3] = [
        Request::Hello {
            abi_version: 1,
            slots: 64,
            policy: 3,
            budget_ns: 1_000_000,
            grace_ns: 2_000_000,
        },
        Request::Register { slot: 7, tid: 4711 },
        Request::Unregister { slot: 7 },
    ];

    #[test]
    fn messages_survive_encoding() {
        for request in REQUESTS {
            assert_eq!(Request::decode(request.encode().bytes()), Ok(request));
        }
        for reply in [
            Reply::Welcome { mode: 1, slots: 64 },
            Reply::Registered { slot: 7 },
            Reply::Unregistered { slot: 7 },
            Reply::Refused(Refusal::Thread),
        ] {
            assert_eq!(Reply::decode(reply.encode().bytes()), Ok(reply));
        }
    }

    #[test]
    fn every_refusal_survives_encoding() {
        for number in 0..=13 {
            let refusal = Refusal::from_number(number);
            assert_eq!(refusal as u32, number);
        }
        assert_eq!(Refusal::from_number(14), Refusal::Internal);
    }

    #[test]
    fn wrong_packets_are_refused_with_their_reason() {
        let good = REQUESTS[0].encode();
        for length in 0..good.bytes().len() {
            assert!(Request::decode(&good.bytes()[..length]).is_err());
        }
        let with = |at: usize, byte: u8| {
            let mut message = good;
            message.buffer[at] ^= byte;
            Request::decode(message.bytes())
        };
        assert_eq!(with(0, 1), Err(Refusal::Magic));
        assert_eq!(with(4, 1), Err(Refusal::Version));
        assert_eq!(with(6, 0x40), Err(Refusal::Kind));
        assert_eq!(with(8, 1), Err(Refusal::Length));
        assert_eq!(with(12, 1), Err(Refusal::Length));
        let mut long = good;
        long.length = MESSAGE_BYTES;
        long.write_length();
        assert_eq!(Request::decode(long.bytes()), Err(Refusal::Length));
        // A reply is no request.
        let reply = Reply::Registered { slot: 0 }.encode();
        assert_eq!(Request::decode(reply.bytes()), Err(Refusal::Kind));
    }

    #[test]
    fn random_packets_cause_no_panic() {
        // Miri needs 4 ms for each packet.
        const PACKETS: usize = if cfg!(miri) { 1_000 } else { 100_000 };
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..PACKETS {
            let mut bytes = REQUESTS[0].encode().buffer;
            for _ in 0..4 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                bytes[(state >> 33) as usize % MESSAGE_BYTES] = (state >> 41) as u8;
            }
            let length = (state >> 50) as usize % (MESSAGE_BYTES + 1);
            let _ = Request::decode(&bytes[..length]);
            let _ = Reply::decode(&bytes[..length]);
        }
    }
}
