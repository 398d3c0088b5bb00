package journal

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// A record lies in its segment as a header of headerSize bytes and a payload.
// The header has a checksum of its own, so that a stretch of damage cannot
// pass a wrong length off as a right one.
//
//	0  magic, 4 bytes
//	4  payload length, uint32, little endian as all that follows
//	8  rows, uint32
//	12 appended at, int64, nanoseconds since the epoch
//	20 CRC-32C of the payload
//	24 CRC-32C of the 24 bytes before
const headerSize = 28

const magic = "RLr\x01"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type header struct {
	length   int64
	rows     int
	appended time.Time
	crc      uint32
}

// reserveHeader appends room for a header.
func reserveHeader(b []byte) []byte {
	var h [headerSize]byte
	copy(h[:], magic)
	return append(b, h[:]...)
}

// describePayload fills the header in front of payload in, but for the time.
func describePayload(h, payload []byte, rows int) {
	binary.LittleEndian.PutUint32(h[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[8:], uint32(rows))
	binary.LittleEndian.PutUint32(h[20:], crc32.Checksum(payload, castagnoli))
}

// sealHeader sets the time of the append and the header's checksum.
func sealHeader(h []byte, at time.Time) {
	binary.LittleEndian.PutUint64(h[12:], uint64(at.UnixNano()))
	binary.LittleEndian.PutUint32(h[24:], crc32.Checksum(h[:24], castagnoli))
}

// parseHeader reads a header; ok is false for bytes that are none.
func parseHeader(h []byte) (hd header, ok bool) {
	if len(h) < headerSize || string(h[:4]) != magic ||
		crc32.Checksum(h[:24], castagnoli) != binary.LittleEndian.Uint32(h[24:]) {
		return header{}, false
	}
	hd = header{
		length:   int64(binary.LittleEndian.Uint32(h[4:])),
		rows:     int(binary.LittleEndian.Uint32(h[8:])),
		appended: time.Unix(0, int64(binary.LittleEndian.Uint64(h[12:]))),
		crc:      binary.LittleEndian.Uint32(h[20:]),
	}
	return hd, hd.length <= maxPayload
}
