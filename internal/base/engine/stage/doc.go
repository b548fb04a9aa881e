// Package stage moves memory that only a device can touch, a GPU's, over transports
// that need memory of the host: through pinned staging buffers, in pieces, of which
// several are under way at a time, so that the copy of one overlaps the sending of
// another.
//
// Wrap does it for our own requests, over any transport: a request that touches
// device memory here is cut into parts, each with a buffer. A WRITE's part is copied
// to its buffer and then posted, a READ's is posted and then copied. The request
// completes when its last part has, so that a READ is in the device's memory by then.
//
// Window is for both sides, and what a transport uses whose passive side answers by
// itself: it lays spans out in a buffer and copies them. Such a transport gives its
// regions of device memory the key Key, which has peers ask for no more than
// memory.PieceBytes at a time.
package stage

// Key is the key of a region of device memory, of a transport that stages it.
const Key = "staged"
