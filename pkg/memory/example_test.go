package memory_test

import (
	"errors"
	"fmt"

	"github.com/mapd-project/mapd/pkg/memory"
)

func Example() {
	budget := memory.New(1 << 20)
	account := budget.Open()
	defer account.Close()

	fmt.Println("4 KiB:", account.Charge(4<<10))
	err := account.Charge(4 << 20)
	var refused *memory.Error
	fmt.Println("4 MiB:", errors.As(err, &refused), refused.Reason)
	// Output:
	// 4 KiB: <nil>
	// 4 MiB: true too-large
}
