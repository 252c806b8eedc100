"""Pure decisions: signals, detector, relief, plans. Time is an argument; nothing here touches the OS."""
