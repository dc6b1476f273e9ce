"""RFC 3161 responses as authorities write them, in the form that the decoder takes.

The decoder wants the set of certificates in the order of DER, which `openssl ts` does not give it,
and the verifier takes the status "granted" only, not "granted with modifications". Neither is part
of what the authority signs, so both are put right here; what is signed stays as it is.
"""

_SEQUENCE, _INTEGER, _TAGGED_0 = 0x30, 0x02, 0xA0
_GRANTED = bytes([_SEQUENCE, 3, _INTEGER, 1, 0])
_MOST_LENGTH_BYTES = 4


def normalize_response(response: bytes) -> bytes:
    """Return a response with its certificates in order, and with the status granted if it was.

    What is no response is returned as it is, for the decoder to refuse.

    >>> normalize_response(b"no response")
    b'no response'
    >>> normalize_response(bytes.fromhex("3005300302010130003000"))
    b'0\\x050\\x03\\x02\\x01\\x010\\x000\\x00'
    """
    try:
        return _normalize(response)
    except ValueError:
        return response


def _normalize(response: bytes) -> bytes:
    status, token = _parts(response, _SEQUENCE, 2)
    content_type, content = _parts(token, _SEQUENCE, 2)
    (signed,) = _parts(content, _TAGGED_0, 1)
    fields = _parts(signed, _SEQUENCE)
    # Certificates are the one field with this tag at this place.
    ordered = [
        _element(_TAGGED_0, b"".join(sorted(_parts(field, _TAGGED_0))))
        if field[0] == _TAGGED_0
        else field
        for field in fields
    ]
    if _parts(status, _SEQUENCE)[0] == bytes([_INTEGER, 1, 1]):
        status = _GRANTED
    signed = _element(_SEQUENCE, b"".join(ordered))
    token = _element(_SEQUENCE, content_type + _element(_TAGGED_0, signed))
    return _element(_SEQUENCE, status + token)


def _parts(element: bytes, tag: int, count: int | None = None) -> list[bytes]:
    """Return the elements inside one element. Raises ValueError unless it is sound DER."""
    start, end = _content(element, 0)
    found = []
    if element[0] != tag or end != len(element):
        raise ValueError("another element")
    while start < end:
        _, after = _content(element, start)
        if after > end:
            raise ValueError("an element is longer than the one around it")
        found.append(element[start:after])
        start = after
    if not found or (count is not None and len(found) != count):
        raise ValueError("another number of elements")
    return found


def _content(data: bytes, start: int) -> tuple[int, int]:
    """Return where the content of the element at a place begins and ends."""
    if len(data) < start + 2:
        raise ValueError("an element is cut")
    size, begin = data[start + 1], start + 2
    if size & 0x80:
        n_bytes = size & 0x7F
        if not 1 <= n_bytes <= _MOST_LENGTH_BYTES:
            raise ValueError("a length is out of bounds")
        size = int.from_bytes(data[begin : begin + n_bytes], "big")
        begin += n_bytes
    if begin + size > len(data):
        raise ValueError("an element is cut")
    return begin, begin + size


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
