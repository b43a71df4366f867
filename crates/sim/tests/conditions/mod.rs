//! Puts with conditions and expiry, over a protocol that takes them ([`ordered`]).
mod exact;
mod ordered;
mod over_resp;
