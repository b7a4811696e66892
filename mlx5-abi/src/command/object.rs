//! Objects that are a number and nothing more: UAR pages, protection domains, transport domains, XRC domains.

use crate::layout::layouts;

layouts! {
    /// The number is the page's index in BAR 0, in units of 4 KiB.
    AllocUarOut = "alloc_uar_out" [16] {
        UAR: field(0x08, 23, 0),
    }

    /// Gives a UAR page back.
    DeallocUarIn = "dealloc_uar_in" [16] {
        UAR: field(0x08, 23, 0),
    }

    /// A protection domain.
    AllocPdOut = "alloc_pd_out" [16] {
        PD: field(0x08, 23, 0),
    }

    /// Gives a protection domain back.
    DeallocPdIn = "dealloc_pd_in" [16] {
        PD: field(0x08, 23, 0),
    }

    /// A transport domain: packets sent in one may be kept from its own TIRs.
    AllocTransportDomainOut = "alloc_transport_domain_out" [16] {
        TRANSPORT_DOMAIN: field(0x08, 23, 0),
    }

    /// Gives a transport domain back.
    DeallocTransportDomainIn = "dealloc_transport_domain_in" [16] {
        TRANSPORT_DOMAIN: field(0x08, 23, 0),
    }

    /// An XRC domain.
    AllocXrcdOut = "alloc_xrcd_out" [16] {
        XRCD: field(0x08, 23, 0),
    }

    /// Gives an XRC domain back.
    DeallocXrcdIn = "dealloc_xrcd_in" [16] {
        XRCD: field(0x08, 23, 0),
    }
}
