//! Answers of an HTTP/1.1 server on a connection that is kept alive: where each ends.

use std::io::{self, ErrorKind};

/// The maximum size of an answer's head, in bytes: more than any server here sends.
pub const LONGEST_HEAD: usize = 16 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Whether the answer has all its bytes.
///
/// # Errors
/// On an answer that is not 200, has no length, or has more bytes than it says.
pub fn is_whole(answer: &[u8]) -> io::Result<bool> {
    match length_of(answer)? {
        Some(whole) if answer.len() > whole => {
            Err(bad("more bytes than the answer's content-length says"))
        }
        whole => Ok(whole == Some(answer.len())),
    }
}

/// The length of head and body together, once the head is complete.
fn length_of(answer: &[u8]) -> io::Result<Option<usize>> {
    let ends = answer.windows(HEAD_END.len());
    let Some(end) = ends.into_iter().position(|bytes| bytes == HEAD_END) else {
        if answer.len() > LONGEST_HEAD {
            return Err(bad("a head without end"));
        }
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| bad("a head that is no text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(bad(&format!("'{status}'")));
    }
    let body = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or_else(|| bad("an answer without content-length"))?;
    Ok(Some(end + HEAD_END.len() + body))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_known() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert!(is_whole(answer).unwrap());
        assert!(!is_whole(&answer[..40]).unwrap());
        assert!(!is_whole(&answer[..30]).unwrap());
        for (bad, expected) in [
            (
                &b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"[..],
                "500 No",
            ),
            (b"HTTP/1.1 200 OK\r\ndate: x\r\n\r\n", "content-length"),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
                "content-length",
            ),
        ] {
            assert!(is_whole(bad).unwrap_err().to_string().contains(expected));
        }
    }
}
